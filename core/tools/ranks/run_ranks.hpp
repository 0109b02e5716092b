// `--nproc N`: starts N ranks of this run on this host and manages them until all have ended.
#pragma once
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace strata::ranks {

// Prefix of the name of a run whose ranks run_ranks() started.
inline constexpr const char* nproc_run = "nproc-";

// Returns the path of the running executable; the programs of an installation are in its folder. Throws
// EnvironmentError.
std::filesystem::path running_executable();

struct RankProgram {
  int ranks = 1;
  std::string program;                       // its path; empty: the running executable
  std::vector<std::string> arguments;        // without the program's name
  std::chrono::milliseconds patience{5000};  // time from SIGTERM to SIGKILL
  // Limit for a rank stopped by a signal: a longer stop ends the run, as the ranks do on their own once they are
  // connected.
  std::chrono::milliseconds longest_stop{5000};
  std::string answer;          // text for standard error when this process is first asked to end
  bool oversubscribe = false;  // start the ranks even if the host lacks the cores or memory
};

// Starts the ranks and manages them until all have ended. Each gets the variables that torchrun sets (RANK, WORLD_SIZE,
// LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_USE_AGENT_STORE: this process serves the store,
// on the loopback address), and OMP_NUM_THREADS = cores / ranks unless it is set. Rank 0 writes to this process's
// standard output and error; the other ranks' lines are prefixed, "[rank 1] ".
//
// Returns 0 if all ranks return 0. If one fails, the others get SIGTERM, shortly after again SIGTERM and, after
// `patience`, SIGKILL; its last lines on standard error are repeated and its status is returned, 128 + N if signal N
// killed it. SIGINT, SIGTERM and SIGHUP to this process (SIGHUP unless it is ignored) are forwarded to all ranks, which
// may take any time to finish a step and save; the result is 128 + N, or the status of a rank that fails in the
// meantime. A second such signal, half a second or more after the first, kills them. A rank that cannot be killed,
// because it waits in the kernel, is named and abandoned after 10 s. If this process is killed, the kernel kills the
// ranks. All processes in the ranks' process groups end too. Must be called from the main thread. An error that several
// ranks report in the same words is printed once. Throws UserError for more ranks than check_ranks() allows,
// EnvironmentError if a rank cannot be started.
int run_ranks(const RankProgram& program);

}  // namespace strata::ranks
