// A partitioner of the tree with options that are not at their defaults.
#pragma once
#include <strata/fakes/partition_ranks.hpp>

#include <map>
#include <string>

struct Variant {
  std::string plugin;
  strata::fakes::OptionTexts options;
};

// Loaded once.
inline const strata::fakes::PluginLibrary& library_of(const Variant& variant) {
  static std::map<std::string, strata::fakes::PluginLibrary> libraries;
  const std::string file = std::string(PLUGIN_FOLDER) + "/libstrata_partitioner_" + variant.plugin + ".so";
  return libraries.try_emplace(variant.plugin, file).first->second;
}

inline std::string describe(const Variant& variant) {
  std::string text = variant.plugin;
  for (const auto& [name, value] : variant.options) text += " " + name + "=" + value;
  return text;
}
