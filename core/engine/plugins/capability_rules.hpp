// Which plugins cannot run together, by what their manifests declare: checked before a run, on every rank.
#pragma once
#include "config/run_config.hpp"
#include "plugins/registry.hpp"

namespace strata::plugin_host {

// Throws UserError for the first rule that is broken, naming the plugins, the rule and what to do.
void check_capabilities(const config::RunConfig& config, PluginRegistry& registry);

}  // namespace strata::plugin_host
