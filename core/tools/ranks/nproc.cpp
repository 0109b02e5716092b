#include "tools/ranks/nproc.hpp"

#include <strata/error.hpp>

#include <charconv>

#include "tools/ranks/run_ranks.hpp"

namespace strata::ranks {

namespace {

std::string as_rank(const group::LaunchPlace& place) {
  const char* const variables = place.launcher == group::Launcher::OpenMpi
                                    ? "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE"
                                : place.launcher == group::Launcher::Slurm ? "SLURM_STEP_ID and SLURM_STEP_NUM_TASKS"
                                                                           : "RANK and WORLD_SIZE";
  return format("this process is already rank {} of {}, by {} in its environment", place.rank, place.size, variables);
}

}  // namespace

bool is_rank_of_nproc(const group::LaunchPlace& place) {
  return place.launcher == group::Launcher::Torchrun && place.run_name.starts_with(nproc_run);
}

bool starts_ranks(int ranks, const group::LaunchPlace& place) {
  if (ranks == 0 || (is_rank_of_nproc(place) && place.size == ranks)) return false;
  if (place.launcher == group::Launcher::None) return true;
  throw UserError(
      "--nproc {} starts ranks on this machine, and {}; leave --nproc out to be that rank, or unset these variables to "
      "start ranks here",
      ranks, as_rank(place));
}

void check_alone(const std::string& command) {
  const group::LaunchPlace place = group::read_environment();
  if (place.launcher == group::Launcher::None) return;
  throw UserError("{} starts runs of its own, and {}; unset these variables", command, as_rank(place));
}

std::string forgotten_srun(const group::LaunchPlace& place, const group::Environment& environment) {
  const std::string tasks = environment("SLURM_NTASKS").value_or("");
  int number = 0;
  std::from_chars(tasks.data(), tasks.data() + tasks.size(), number);
  if (place.launcher != group::Launcher::None || number < 2) return "";
  return "Slurm gave this job " + tasks +
         " tasks (SLURM_NTASKS), and this process, which srun did not start, is the only rank of its run; start the "
         "ranks by srun, or by --nproc on one host";
}

}  // namespace strata::ranks
