// A partitioner of the tree with options that are not at their defaults.
#pragma once
#include <strata/error.hpp>
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

inline Variant with(Variant variant, const std::string& name, const std::string& value) {
  variant.options.emplace_back(name, value);
  return variant;
}

// What the user is told of it with options of these values, before any group is made; empty: nothing.
inline std::string refusal(const Variant& variant, const strata::OptionValues& values, int ranks) {
  try {
    strata::fakes::FakePluginContext context("partitioner/" + variant.plugin, values, 0, {{strata::Axis::Data, ranks}});
    library_of(variant).make<strata::Partitioner>(context)->groups({{strata::Axis::Data, ranks}});
  } catch (const strata::UserError& error) {
    return error.what();
  }
  return "";
}

inline std::string refusal(const Variant& variant, int ranks) {
  return refusal(variant, library_of(variant).values(variant.options), ranks);
}
