// Which options of a model make it another model.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/run_config.hpp"
#include "plugins/registry.hpp"

namespace strata::runtime {

// The architecture of the model that `choice` names with these options: the config.json of its export. `config_json`:
// that of a folder which configures the model; may be empty. Nothing where the plugin makes no such model, or exports
// none. [any rank]
std::optional<std::string> architecture(const config::PluginChoice& choice, const OptionValues& options,
                                        plugin_host::PluginRegistry& registry, const std::string& config_json = "");

// True for an option that acts in training only, so that a resumed run may change it: by convention its name ends with
// `dropout`.
bool acts_in_training_only(std::string_view option);

// The options because of which `one` and `other` are different models of this plugin, empty where they are the same:
// options may be spelled otherwise (a preset, sizes), say how the model is computed (chunks), or act in training only.
// Where the plugin exports no model, every option that differs counts. [any rank]
std::vector<std::string> options_of_another_model(const config::PluginChoice& choice, const OptionValues& one,
                                                  const OptionValues& other, plugin_host::PluginRegistry& registry);

}  // namespace strata::runtime
