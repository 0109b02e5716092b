// Conversion of a tree's values to types by a schema. The engine's own keys (keys.hpp) and the options in a plugin's
// manifest have the same form, <strata/options.hpp>, and go through the same checks.
#pragma once
#include <strata/options.hpp>

#include <string>

#include "config/tree.hpp"

namespace strata::config {

using strata::OptionSpec;
using strata::OptionValue;
using strata::OptionValues;

// Returns the node's value as the option's type; `path` is the dotted path for messages. Texts may be quoted or not,
// sizes too (TOML and JSON must quote 16MB); other numbers, true and false stand without quotes; digits may be grouped
// as in 1_000. Throws UserError with the node's place: path, value, rule.
OptionValue typed_option(const Node& node, const OptionSpec& option, const std::string& path);

bool is_auto(const Node& node);

// Returns the one spelling of a value, which reads back exactly: 500000000, 0.0006, true, [0.9, 0.999].
std::string to_text(const OptionValue& value);

// True if a text, as written by to_text() or a person, means this value: 1e-3 means 0.001.
bool means(const std::string& text, const OptionValue& value);

}  // namespace strata::config
