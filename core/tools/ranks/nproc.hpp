// `--nproc` in combination with the environment of a launcher.
#pragma once
#include <string>

#include "group/launch_place.hpp"

namespace strata::ranks {

// True if this process starts the `ranks` ranks of its --nproc; false without one, 0, and in the ranks themselves,
// which have the same command line. Throws UserError in a rank of another launcher, where --nproc contradicts it.
bool starts_ranks(int ranks, const group::LaunchPlace& place);

// True in a rank that run_ranks() started.
bool is_rank_of_nproc(const group::LaunchPlace& place);

// Throws UserError in a rank of a launcher: `command` starts runs of its own, whose processes would take themselves for
// that rank.
void check_alone(const std::string& command);

// Returns a warning for a Slurm job with several tasks that runs outside of srun, where this process is the only rank
// of its run; otherwise empty.
std::string forgotten_srun(const group::LaunchPlace& place,
                           const group::Environment& environment = group::process_environment);

}  // namespace strata::ranks
