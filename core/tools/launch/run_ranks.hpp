// `--nproc N`: starts N ranks of this run on this host and owns them until all are gone.
#pragma once
#include <chrono>
#include <string>
#include <vector>

namespace strata::launch {

struct RankProgram {
  int ranks = 1;
  std::string program;                       // its path; empty: the running executable
  std::vector<std::string> arguments;        // without the program's name
  std::chrono::milliseconds patience{5000};  // from the polite signal to SIGKILL
  bool oversubscribe = false;  // start them though the host has nothing like the cores and memory they need
};

// Each rank gets the variables torchrun sets (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT,
// TORCHELASTIC_USE_AGENT_STORE: the store is served here, on the loopback address), and OMP_NUM_THREADS = cores / ranks
// unless it is set. Rank 0 writes to this process's standard output and error, the others' lines get "[rank 1] " in
// front.
//
// Returns 0 when all ranks return 0. When one fails, the others get SIGTERM, a moment later again and, after
// `patience`, SIGKILL; its last lines on standard error are shown again and its status is returned, 128 + N when signal
// N killed it. SIGINT, SIGTERM and SIGHUP to this process (SIGHUP unless it is ignored here) go to all ranks, which
// then have the time they need to finish a step and save; 128 + N is returned, or the status of a rank that fails
// meanwhile. A second such signal, half a second or more after the first, kills them. When this process itself is
// killed, the kernel kills the ranks. Nothing that a rank started in its process group is left. Must be called from the
// main thread. What a rank says last on standard error is said once, and so is an error that several ranks report
// alike. Throws UserError for more ranks than check_ranks() lets pass, EnvironmentError when a rank cannot be started.
int run_ranks(const RankProgram& program);

}  // namespace strata::launch
