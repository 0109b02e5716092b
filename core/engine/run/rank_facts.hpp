// Facts that the ranks of a run compare before the first step, in addition to their configs: the engine, and files
// behind paths that may differ between hosts.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "checkpoint/weights.hpp"
#include "config/run_config.hpp"
#include "data/loader.hpp"
#include "group/fact.hpp"
#include "plugins/registry.hpp"

namespace strata::run {

// Returns the ABI number, this program, the libraries of Strata and libtorch, and the plugins that `registry` has
// loaded. Throws EnvironmentError if one of their files cannot be read. [any rank]
std::vector<group::Fact> engine_facts(const plugins::PluginRegistry& registry);

// Returns a fingerprint of a data set's tokens: of all, or in a large set of 2^20 drawn ones, with their number and
// further counts of the data plugin. Blocks. Throws EnvironmentError. [any rank]
std::uint64_t content_of(const data::TokenSource& source);

// Files that a run reads; null: not read.
struct FilesRead {
  const data::Loader* data = nullptr;
  const data::Loader* validation = nullptr;
  const checkpoint::SavedWeights* weights = nullptr;
};
// Returns one fact for each key whose content ranks compare. [any rank]
std::vector<group::Fact> content_facts(const config::RunConfig& config, const FilesRead& files);

}  // namespace strata::run
