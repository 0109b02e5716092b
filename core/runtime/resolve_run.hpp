// defines: resolve_run
#pragma once
#include <vector>

#include "config/run_config.hpp"
#include "plugin_host/registry.hpp"

namespace strata::runtime {

// config::resolve, and where a ds_config leaves "auto" what depends on the model, that too: the hidden size is asked
// of the model, and the micro-batch is the largest that fits the memory budget. `local_ranks`: ranks that will run on
// this host, or 0 when other processes resolve the same config: then a micro-batch needs a memory_budget that is
// given, so that all come to the same. Throws UserError. `plugins` is the registry as the config sees it. [any rank]
config::RunConfig resolve_run(const std::vector<config::Node>& layers, const config::World& world,
                              plugin_host::PluginRegistry& registry, const config::PluginSource& plugins,
                              int local_ranks, config::DataSection data = config::DataSection::Required);

// The width of the model's residual stream: the last extent of what its first layer gives.
std::int64_t hidden_size(const config::RunConfig& config, plugin_host::PluginRegistry& registry);

}  // namespace strata::runtime
