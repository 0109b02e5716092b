// Token files opened with a data plugin of the tree, as a run opens them.
#pragma once
#include <strata/data_source.hpp>
#include <strata/fakes/plugin_library.hpp>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/samples.hpp"

// Made once for all tests: a source needs its plugin as long as it lives.
inline const strata::DataSource& data_plugin(const std::string& name, const strata::fakes::OptionTexts& options = {}) {
  using Loaded = strata::fakes::LoadedPlugin<strata::DataSource>;
  static std::map<std::pair<std::string, strata::fakes::OptionTexts>, std::unique_ptr<Loaded>> plugins;
  std::unique_ptr<Loaded>& plugin = plugins[{name, options}];
  if (plugin == nullptr) {
    const strata::fakes::PluginLibrary library(PLUGIN_FOLDER "/libstrata_data_" + name + ".so");
    plugin = std::make_unique<Loaded>(library, options);
  }
  return **plugin;
}

inline strata::data::TokenSource open_tokens(const std::string& plugin, const std::string& path,
                                             const strata::fakes::OptionTexts& options = {}) {
  return {data_plugin(plugin, options), "data/" + plugin, path};
}

inline strata::data::OrderedSamples own_order(const std::string& plugin, const std::string& path,
                                              const strata::SampleRequest& request) {
  return {open_tokens(plugin, path), strata::config::DataOrder::Own, request};
}

// Returns the tokens of a sample, and for each 1 if it is a target.
inline std::pair<std::vector<std::int64_t>, std::vector<std::uint8_t>> sample_at(
    const strata::data::OrderedSamples& samples, std::int64_t position) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(samples.seq_len()) + 1);
  std::vector<std::uint8_t> is_target(tokens.size());
  samples.read(position, tokens.data(), is_target.data());
  return {tokens, is_target};
}
