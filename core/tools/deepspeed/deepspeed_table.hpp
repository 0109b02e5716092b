#pragma once
#include <string>
#include <vector>

#include "config/tree.hpp"

namespace strata::deepspeed {

// Returns a part of keys.yaml ("keys", "blocks", "stages"), whose first lines describe the rows.
const config::Node& deepspeed_table(const std::string& part);

// Returns the keys of a ds_config directly below a path; "" is the top.
std::vector<std::string> deepspeed_children(const std::string& path);

// Returns the text at a key of a map; empty without one.
std::string text_at(const config::Node& map, const std::string& key);

// True if a version, numbers separated by dots, is lower than another.
bool is_older(const std::string& version, const std::string& than);

}  // namespace strata::deepspeed
