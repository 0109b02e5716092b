// The place of this process in the run, read from the environment variables that torchrun, Strata's own --nproc, Open
// MPI or Slurm set.
#pragma once
#include <functional>
#include <optional>
#include <string>

namespace strata::group {

enum class Launcher { None, Torchrun, OpenMpi, Slurm };  // None: a single process
const char* name_of(Launcher launcher);                  // returns "one process", "torchrun", "Open MPI", "Slurm"

struct LaunchPlace {
  Launcher launcher = Launcher::None;
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;         // ranks on this host; 0: unknown
  std::string store_address;  // address of the run's key-value store; empty if size is 1
  int store_port = 0;
  bool store_served = false;  // true: the launcher serves it; false: rank 0 does
  std::string run_name;       // separates this run's keys from an earlier attempt's in the same store
  // Local address for connections to peers: loopback unless ranks are on several hosts. Empty if the name of the
  // store's host is not known yet: then the address from which this host reaches the store.
  std::string interface_address;
  bool several_hosts = false;  // true: ranks are on several hosts
};

// Throws UserError if ranks are on several hosts and `interface_address` is one that the others cannot reach.
void check_reachable(const LaunchPlace& place, const std::string& interface_address);

// Looks up a variable; an empty value counts as not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> process_environment(const std::string& name);

// Reads the variables of the first launcher that is recognised, in the order RANK (torchrun and similar launchers,
// Strata's --nproc), OMPI_COMM_WORLD_RANK (Open MPI), SLURM_STEP_ID (srun). RANK and WORLD_SIZE suffice if MASTER_ADDR
// is a loopback address. Throws UserError naming the variable if one is missing or has an invalid value.
LaunchPlace read_environment(const Environment& environment = process_environment);

// Returns the first name in a Slurm host list: "node07" of "node[07-09,12],login1". Throws UserError if malformed.
std::string first_host(const std::string& host_list);

}  // namespace strata::group
