// Options of a model that make it another model.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.hpp"
#include "plugins/registry.hpp"

namespace strata::resolve {

// Returns the architecture of the model that `choice` names, with these options: the config.json of its export.
// `config_json`: of a folder that configures the model; may be empty. Empty result if the plugin cannot make or export
// the model. [any rank]
std::optional<std::string> architecture(const config::PluginChoice& choice, const OptionValues& options,
                                        plugins::PluginRegistry& registry, const std::string& config_json = "");

// True for an option that affects training only, so that a resumed run may change it: by convention its name ends with
// `dropout`.
bool acts_in_training_only(std::string_view option);

// Returns the options that make `one` and `other` different models of this plugin; empty if they are the same model:
// options may be spelled differently (a preset, sizes), affect only how the model is computed (chunks), or affect
// training only. If the plugin exports no model, every different option counts. [any rank]
std::vector<std::string> options_of_another_model(const config::PluginChoice& choice, const OptionValues& one,
                                                  const OptionValues& other, plugins::PluginRegistry& registry);

}  // namespace strata::resolve
