// The engine's own part of a config, as data: what keys there are, and where plugins are named. Defaults are not here
// but in configs/defaults.yaml, where people can read them and where plugins may be named.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "config/schema.hpp"

namespace strata::config {

// A key of the engine. `option.name` is the whole dotted path, `option.default_text` is empty. Three types exist here
// only:
//   layers  none, all, or a list of layer numbers
//   parameter_rules  a list of sections, see parameter_rules.hpp
//   variants  a list of texts, see variants.hpp
//   rule    what `auto` means: a list of names, of which the first usable is taken, or a section of names by device
struct EngineKey {
  OptionSpec option;
  bool automatic = false;  // `auto` is allowed and leaves the value to be derived
};

// A section that names a plugin: `partitioner: {plugin: NAME, NAME: {options}}`.
struct PluginSlot {
  std::string path;
  std::string kind;
  bool optional = false;  // `plugin: none` is allowed
};

const std::vector<EngineKey>& engine_keys();
const EngineKey* engine_key(std::string_view path);  // null when the engine has no such key

// Whether a key's value is where files are and nothing else: it may differ from rank to rank and from a run to the one
// that resumes it. data.path is not one of them, as a run is a function of what it trains on.
bool only_names_files(std::string_view path);

// In the order in which `auto` is resolved: the device first, which others depend on.
const std::vector<PluginSlot>& plugin_slots();
const PluginSlot* plugin_slot(std::string_view path);

// The engine's keys and sections directly below `path` ("" is the top); "plugin" among them for a slot.
std::vector<std::string> known_children(std::string_view path);

}  // namespace strata::config
