#pragma once
#include <string>

#include "config/tree.hpp"

namespace strata::cli {

// The tree in the spelling of a file, which reads back as the same tree. In YAML and TOML a translated value has its
// origin behind it as a comment. Ends with a line break; an empty tree is an empty text. Throws UserError for what TOML
// cannot hold: keys without a value.
std::string write_tree(const config::Node& tree, config::Format format);

}  // namespace strata::cli
