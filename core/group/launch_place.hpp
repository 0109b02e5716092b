// Where the launcher put this process in the run: read from the variables that torchrun, Strata's own --nproc, Open MPI
// or Slurm set.
#pragma once
#include <functional>
#include <optional>
#include <string>

namespace strata::launch {

enum class Launcher { None, Torchrun, OpenMpi, Slurm };  // None: a process of its own
const char* name_of(Launcher launcher);                  // "one process", "torchrun", "Open MPI", "Slurm"

struct LaunchPlace {
  Launcher launcher = Launcher::None;
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;         // ranks on this host; 0: the launcher does not say
  std::string store_address;  // where the run's key-value store is served; empty when size is 1
  int store_port = 0;
  bool store_served = false;  // the launcher serves it; otherwise rank 0 does
  std::string run_name;       // tells this run's keys from an earlier attempt's in the same store
  std::string
      interface_address;  // the local address to connect peers through: loopback unless ranks are on several hosts
};

// Looks up a variable; absent and empty are the same.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<std::string> process_environment(const std::string& name);

// The variables of the first launcher of which any is set, in the order RANK (torchrun and its like, Strata's --nproc),
// OMPI_COMM_WORLD_RANK (Open MPI), SLURM_STEP_ID (srun). RANK and WORLD_SIZE are enough where MASTER_ADDR is an address
// of this host alone. Throws UserError naming the variable when a set is incomplete or a value is not a number in its
// range.
LaunchPlace read_environment(const Environment& environment = process_environment);

// The names in a Slurm host list: the first of "node[07-09,12],login1" is "node07". Throws UserError when it cannot be
// read.
std::string first_host(const std::string& host_list);

}  // namespace strata::launch
