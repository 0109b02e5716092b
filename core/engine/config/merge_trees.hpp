// Steps of resolve (run_config.hpp) that work on trees.
#pragma once
#include <vector>

#include "config/keys.hpp"
#include "config/plugin_source.hpp"
#include "config/run_config.hpp"
#include "config/tree.hpp"

namespace strata::config {

// Merges the trees, later ones winning. In the result every slot is a section, and options written beside `plugin:` are
// moved into the section of the plugin chosen up to their tree: a later tree that chooses another plugin does not
// inherit them.
Node combine(std::vector<Node> trees, const PluginSource& plugins);

// Replaces `auto` in slots by the plugin of the rule under `automatic:`: one, or the first of a list that is usable
// here, and by ranks on several hosts if not `on_one_host`. Throws UserError when there is no rule or no usable
// plugin.
void settle_automatic(Node& tree, const PluginSource& plugins, bool on_one_host);

// Gives `validation`, if it names no data plugin, that of `data`, and the options that it leaves out, except those that
// name files.
void validate_as_trained(Node& tree, const PluginSource& plugins);

// Throws UserError when `plugin:` of the slot's section names no known plugin (nor an allowed `none`).
void check_plugin(const Node& section, const PluginSlot& slot, const PluginSource& plugins);

// Throws UserError at the first unknown key, unknown plugin or wrong value of a plugin's option, also in sections of
// plugins that are not chosen.
void check_keys(const Node& tree, const PluginSource& plugins);

// Returns the name of a slot's options section: the manifest's name if a path is given.
std::string plugin_name(const PluginSlot& slot, const std::string& plugin, const PluginSource& plugins);

// Reads the rules of a config's `parameters:` list, which must fit the run's `learning_rate` and `optimizer`. Throws
// UserError with the place of the error.
std::vector<ParameterRule> read_parameter_rules(const Node& list, const LearningRateConfig& learning_rate,
                                                const PluginChoice& optimizer);

}  // namespace strata::config
