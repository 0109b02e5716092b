// What the config's model says of itself.
#pragma once
#include <strata/export.hpp>

#include <cstdint>
#include <string>

#include "config/run_config.hpp"
#include "plugins/registry.hpp"

namespace strata::plan {

// The text of config.json where the config's model starts from a folder; else empty.
STRATA_EXPORT std::string model_config(const config::RunConfig& config);

// The width of the model's residual stream: the last extent of what its first layer gives. Throws UserError where the
// model does not say it.
STRATA_EXPORT std::int64_t hidden_size(const config::RunConfig& config, plugins::PluginRegistry& registry);

// The model's vocabulary, with the sizes that the text of a config.json gives; it may be empty.
STRATA_EXPORT std::int64_t vocabulary_of(const config::RunConfig& config, plugins::PluginRegistry& registry,
                                         const std::string& config_json);

}  // namespace strata::plan
