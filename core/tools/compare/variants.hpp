// What a comparison varies: settings that differ between runs of one config.
#pragma once
#include <string>
#include <vector>

#include "config/tree.hpp"

namespace strata::compare {

struct Variant {
  std::string name;                   // its settings as they were written
  std::vector<std::string> settings;  // "a.b=c", later ones win
};

// "a.b=1 c=[1, 2]" as its settings: parted by spaces that are in no quotes and in no brackets. Throws UserError with
// `source` where one is no KEY=VALUE.
std::vector<std::string> split_settings(const std::string& text, const std::string& source);

// One variant for every value of "KEY=A,B": commas in brackets and quotes part nothing. Throws UserError for fewer than
// two values.
std::vector<Variant> vary(const std::string& text);

// A config's `compare:` list, one text of settings a variant. Throws UserError with the place of what is wrong.
std::vector<Variant> read_variants(const config::Node& list);

// Names for headings: of a file's absolute path only what tells it apart from the other names' files. A plugin's
// library is called as its plugin: "partitioner.plugin=/home/me/build/libmine.so" is "partitioner.plugin=mine".
std::vector<std::string> short_names(const std::vector<std::string>& names);

// Every combination of one variant of each list, the first list's changing last.
std::vector<Variant> every_combination(const std::vector<std::vector<Variant>>& lists);

}  // namespace strata::compare
