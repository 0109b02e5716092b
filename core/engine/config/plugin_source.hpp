// What resolving a config must know about plugins. The plugin host implements it from manifests, without loading
// anything.
#pragma once
#include <strata/capability.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "config/schema.hpp"

namespace strata::config {

struct PluginSchema {
  std::string name;  // from the manifest, where the config gave a path
  std::vector<OptionSpec> options;
  std::vector<Capability> capabilities;
  bool can(Capability capability) const {
    return std::find(capabilities.begin(), capabilities.end(), capability) != capabilities.end();
  }
};

class PluginSource {
 public:
  virtual ~PluginSource() = default;

  // `plugin` is a name or the absolute path of a library. Nothing when a name is unknown; throws UserError when there
  // is a plugin but it cannot be used.
  virtual std::optional<PluginSchema> find(const std::string& kind, const std::string& plugin) const = 0;

  // The names known of one kind, for suggestions.
  virtual std::vector<std::string> names(const std::string& kind) const = 0;

  // Why this machine cannot use a plugin that was found ("no NVIDIA driver"); empty when it can. Asked when `auto`
  // chooses.
  virtual std::string obstacle(const std::string& kind, const std::string& plugin) const = 0;

  // One line about a plugin that was not found.
  virtual std::string missing(const std::string& kind, const std::string& plugin) const = 0;
};

}  // namespace strata::config
