#pragma once
#include <string>
#include <vector>

#include "config/tree.hpp"

namespace strata::deepspeed {

// A part of keys.yaml ("keys", "blocks", "stages"), whose first lines say what a row is.
const config::Node& deepspeed_table(const std::string& part);

// The keys of a ds_config directly below a path; "" is the top.
std::vector<std::string> deepspeed_children(const std::string& path);

// The text at a key of a map; empty when there is none.
std::string text_at(const config::Node& map, const std::string& key);

// Whether a version, numbers between dots, comes before another.
bool is_older(const std::string& version, const std::string& than);

}  // namespace strata::deepspeed
