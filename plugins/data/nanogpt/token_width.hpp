#pragma once
#include <strata/toolbox/token_files.hpp>

namespace strata::nanogpt {

// Throws UserError for a file without a header whose first, middle and last numbers look like those of another type
// than the one that its name chose: the type is then to be said.
void check_width(const toolbox::TokenFile& file);

}  // namespace strata::nanogpt
