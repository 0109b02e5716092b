#pragma once
#include <string>

#include "config/run_config.hpp"
#include "group/launch_place.hpp"
#include "plugin_host/registry.hpp"
#include "run/training.hpp"

namespace strata::runtime {

// What a config is resolved for: the ranks that the launcher started, and whether it says that they share a host.
config::World world_of(const launch::LaunchPlace& place);

// The groups of ranks that a launcher started, over the config's communicator. Before the first is connected all ranks
// compare their configs (paths of files aside), `also` and the plugins they loaded; a difference throws
// EnvironmentError. The first three must outlive the result.
MakeGroups launch_groups(const launch::LaunchPlace& place, const config::RunConfig& config,
                         const plugin_host::PluginRegistry& registry, const std::string& also = "");

}  // namespace strata::runtime
