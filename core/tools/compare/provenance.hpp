// Where and when a comparison is made.
#pragma once
#include <string>
#include <vector>

#include "tools/compare/comparison.hpp"

namespace strata::compare {

// `words`: what follows `strata compare` on the command line.
Provenance provenance_of(const std::vector<std::string>& words);

}  // namespace strata::compare
