// Facts about plugins for resolving a config. The plugin host implements it from manifests, without loading
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
  std::string name;  // name in the manifest, also if the config gave a path
  std::vector<OptionSpec> options;
  std::vector<Capability> capabilities;
  bool can(Capability capability) const {
    return std::find(capabilities.begin(), capabilities.end(), capability) != capabilities.end();
  }
};

class PluginSource {
 public:
  virtual ~PluginSource() = default;

  // Finds `plugin`, a name or the absolute path of a library. Empty for an unknown name; throws UserError when there is
  // a plugin but it cannot be used.
  virtual std::optional<PluginSchema> find(const std::string& kind, const std::string& plugin) const = 0;

  // Returns the known names of one kind, for suggestions.
  virtual std::vector<std::string> names(const std::string& kind) const = 0;

  // Returns why this machine cannot use a plugin that was found ("no NVIDIA driver"); empty if it can. Called when
  // `auto` chooses.
  virtual std::string obstacle(const std::string& kind, const std::string& plugin) const = 0;

  // Returns one line about a plugin that was not found.
  virtual std::string missing(const std::string& kind, const std::string& plugin) const = 0;
};

}  // namespace strata::config
