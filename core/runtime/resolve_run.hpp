// defines: ResolvedRun, resolve_run, hidden_size
#pragma once
#include <optional>
#include <vector>

#include "config/deepspeed.hpp"
#include "config/run_config.hpp"
#include "plugin_host/registry.hpp"

namespace strata::runtime {

struct ResolvedRun {
  config::RunConfig config;
  std::optional<config::DeepSpeedReport> deepspeed;  // what every key did, where the config is a ds_config
};

// config::resolve, after a ds_config was translated. Where that leaves "auto" what depends on the model, it is found
// out: the hidden size is asked of the model, and the micro-batch is the largest that fits memory_budget.
// `local_ranks`: ranks that will run on this host, or 0 when other processes resolve the same config: then such a
// micro-batch needs a memory_budget that is given, so that all come to the same. `plugins` is the registry as the
// config sees it. Throws UserError. [any rank]
ResolvedRun resolve_run(std::vector<config::Node> layers, const config::World& world,
                        plugin_host::PluginRegistry& registry, const config::PluginSource& plugins, int local_ranks,
                        config::DataSection data = config::DataSection::Required);

// The width of the model's residual stream: the last extent of what its first layer gives.
std::int64_t hidden_size(const config::RunConfig& config, plugin_host::PluginRegistry& registry);

}  // namespace strata::runtime
