#include "config/plugin_source.hpp"

#include "text/nearest.hpp"

namespace strata::config {

PluginSource::~PluginSource() = default;

std::string PluginSource::missing(const std::string& kind, const std::string& plugin) const {
  return "no " + kind + " plugin " + shown(plugin) + "; " + suggestion(plugin, names(kind));
}

}  // namespace strata::config
