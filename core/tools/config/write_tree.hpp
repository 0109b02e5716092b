#pragma once
#include <string>

#include "config/tree.hpp"

namespace strata::cli {

// Returns the tree in the format's spelling, which reads back as the same tree. In YAML and TOML a translated value is
// followed by its origin as a comment. Ends with a line break; an empty tree gives an empty text. Throws UserError for
// keys without a value, which TOML does not have.
std::string write_tree(const config::Node& tree, config::Format format);

}  // namespace strata::cli
