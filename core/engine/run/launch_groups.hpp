#pragma once
#include <string>

#include "group/launch_place.hpp"
#include "run/run.hpp"

namespace strata::run {

// Returns the ranks that the launcher started, for config::resolve.
config::World world_of(const group::LaunchPlace& place);

// Returns the maker of groups of ranks that a launcher started, over the config's communicator. Before the first is
// connected all ranks compare their configs (config::Compared), `also`, whose parts end with semicolons, and the
// engines and plugins that they loaded; a difference throws EnvironmentError.
stage::MakeGroups launch_groups(const group::LaunchPlace& place, const std::string& also = "");

}  // namespace strata::run
