// Variants of a comparison: settings that differ between runs of one config.
#pragma once
#include <string>
#include <vector>

#include "config/tree.hpp"

namespace strata::compare {

struct Variant {
  std::string name;                   // settings as written
  std::vector<std::string> settings;  // "a.b=c", later ones win
};

// Splits "a.b=1 c=[1, 2]" into settings at spaces outside of quotes and brackets. Throws UserError with `source` for a
// part that is not KEY=VALUE.
std::vector<std::string> split_settings(const std::string& text, const std::string& source);

// Returns one variant per value of "KEY=A,B"; commas in brackets and quotes do not separate. Throws UserError for fewer
// than two values.
std::vector<Variant> vary(const std::string& text);

// Reads a config's `compare:` list, one text of settings per variant. Throws UserError with the place of the error.
std::vector<Variant> read_variants(const config::Node& list);

// Shortens names for headings: absolute paths are cut to the part that distinguishes them, and a plugin's library is
// named like its plugin: "partitioner.plugin=/home/me/build/libmine.so" becomes "partitioner.plugin=mine".
std::vector<std::string> short_names(const std::vector<std::string>& names);

// Returns all combinations of one variant of each list; the first list varies slowest.
std::vector<Variant> every_combination(const std::vector<std::vector<Variant>>& lists);

}  // namespace strata::compare
