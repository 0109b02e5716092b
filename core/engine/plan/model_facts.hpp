// Facts about the config's model.
#pragma once
#include <strata/export.hpp>

#include <cstdint>
#include <string>

#include "config/run_config.hpp"
#include "plugins/registry.hpp"

namespace strata::plan {

// Returns the text of config.json if the config's model starts from a folder; otherwise empty.
STRATA_EXPORT std::string model_config(const config::RunConfig& config);

// Returns the width of the model's residual stream: the last extent of the first layer's output. Throws UserError if
// the model does not report it.
STRATA_EXPORT std::int64_t hidden_size(const config::RunConfig& config, plugins::PluginRegistry& registry);

// Returns the model's vocabulary, with the sizes of `config_json`, the text of a config.json; may be empty.
STRATA_EXPORT std::int64_t vocabulary_of(const config::RunConfig& config, plugins::PluginRegistry& registry,
                                         const std::string& config_json);

}  // namespace strata::plan
