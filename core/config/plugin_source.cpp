#include "config/plugin_source.hpp"

#include <algorithm>

#include "text/nearest.hpp"

namespace strata::config {

bool PluginSchema::can(Capability capability) const {
  return std::find(capabilities.begin(), capabilities.end(), capability) != capabilities.end();
}

PluginSource::~PluginSource() = default;

std::string PluginSource::missing(const std::string& kind, const std::string& plugin) const {
  return "no " + kind + " plugin " + shown(plugin) + "; " + suggestion(plugin, names(kind));
}

}  // namespace strata::config
