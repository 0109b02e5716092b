// defines: OptionSpec, OptionValue, OptionValues, check_option, typed_option, default_option, is_auto, to_text
// What an option may be, as data. The engine's own keys (engine_schema.hpp) and the options in a plugin's manifest have
// the same form and go through the same checks.
#pragma once
#include <strata/options.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "config/tree.hpp"

namespace strata::config {

// `type` and what typing gives:
//   integer   int64         4, 5e8, 1_000
//   number    double        6e-4; integers too; never infinite
//   boolean   bool          true, false
//   text      std::string   any scalar
//   size      int64, bytes  65536, 16MB (10^6), 16MiB (2^20), 1.5GiB
//   integers  vector<int64>
//   numbers   vector<double>
//   choice    std::string   one of `choices`
using strata::OptionSpec;
using strata::OptionValue;
using OptionValues = std::map<std::string, OptionValue>;

// Throws UserError when the specification contradicts itself: no name, unknown type, a bound or a default that is not
// of the type, minimum above maximum, a choice without choices, choices of another type.
void check_option(const OptionSpec& option);

// The node's value as the option's type. `path` is the dotted path that messages name. Throws UserError with the node's
// place: path, value, rule.
OptionValue typed_option(const Node& node, const OptionSpec& option, const std::string& path);

// The value of `default_text`. Throws UserError when the option has no default.
OptionValue default_option(const OptionSpec& option, const std::string& path);

bool is_auto(const Node& node);

// One spelling per value, the one that reads back as the same: 500000000, 0.0006, true, [0.9, 0.999].
std::string to_text(const OptionValue& value);

}  // namespace strata::config
