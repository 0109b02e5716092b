// What the ranks of a run compare before the first step, beside their configs: the engine, and the files behind paths
// that may differ from host to host.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "checkpoint/weights.hpp"
#include "config/run_config.hpp"
#include "data/loader.hpp"
#include "group/fact.hpp"
#include "plugins/registry.hpp"

namespace strata::runtime {

// The ABI number, this program, the libraries of Strata and libtorch, and the plugins that `registry` has loaded.
// Throws EnvironmentError if one of their files cannot be read. [any rank]
std::vector<Fact> engine_facts(const plugin_host::PluginRegistry& registry);

// A fingerprint of a data set's tokens: of all, or in a large set of 2^20 drawn ones, with their number and what else
// the data plugin counts. Blocks. Throws EnvironmentError. [any rank]
std::uint64_t content_of(const data::TokenSource& source);

// What a run reads; nothing where it reads none.
struct FilesRead {
  const data::Loader* data = nullptr;
  const data::Loader* validation = nullptr;
  const SavedWeights* weights = nullptr;
};
// One fact for each key whose content ranks compare. [any rank]
std::vector<Fact> content_facts(const config::RunConfig& config, const FilesRead& files);

}  // namespace strata::runtime
