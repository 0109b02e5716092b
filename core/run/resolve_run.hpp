#pragma once
#include <optional>
#include <vector>

#include "config/dialect.hpp"
#include "config/run_config.hpp"
#include "plugin_host/registry.hpp"

namespace strata::runtime {

struct ResolvedRun {
  config::RunConfig config;
  std::optional<config::Translation> translation;  // what every key did, where the config is in a dialect
};

// config::resolve, after a ds_config was translated; where model.init names a folder, with its config.json's values of
// the model's options. Where that leaves "auto" what depends on the model, it is found out: the hidden size is asked of
// the model, and of an "auto" batch the micro-batch is the largest part that fits memory_budget. Free memory is looked
// at only by the process that starts all ranks; the ranks of another launcher would measure different figures, and all
// come to the same without. `plugins` is the registry as the config sees it. Throws UserError. [any rank]
ResolvedRun resolve_run(std::vector<config::Node> layers, const config::World& world,
                        plugin_host::PluginRegistry& registry, const config::PluginSource& plugins,
                        config::DataSection data = config::DataSection::Required);

// The width of the model's residual stream: the last extent of what its first layer gives.
std::int64_t hidden_size(const config::RunConfig& config, plugin_host::PluginRegistry& registry);

}  // namespace strata::runtime
