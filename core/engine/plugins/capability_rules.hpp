// Rules for combinations of plugins, by the capabilities in their manifests: checked before a run, on every rank.
#pragma once
#include "config/run_config.hpp"
#include "plugins/registry.hpp"

namespace strata::plugin_host {

// Throws UserError for the first broken rule, naming the plugins, the rule and the remedy.
void check_capabilities(const config::RunConfig& config, PluginRegistry& registry);

}  // namespace strata::plugin_host
