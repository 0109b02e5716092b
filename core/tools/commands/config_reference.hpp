// What a key of a config is: `strata config explain` and `strata config reference`, from the descriptions of the
// engine's keys and the manifests of plugins.
#pragma once
#include <iosfwd>
#include <string>

#include "plugin_host/registry.hpp"

namespace strata::cli {

// One key of the engine or option of a plugin: type, default, range, what it affects, an example. `path` is as in a
// config; an option may stand beside `plugin`, as in optimizer.betas. A section prints a table of what is in it. Throws
// UserError with the nearest for a path that leads nowhere.
void config_explain(plugin_host::PluginRegistry& registry, const std::string& path, std::ostream& output);

// configs/REFERENCE.md: a section for each of a config's, then one for each plugin.
void config_reference(plugin_host::PluginRegistry& registry, std::ostream& output);

}  // namespace strata::cli
