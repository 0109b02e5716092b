// Place and time of a comparison.
#pragma once
#include <string>
#include <vector>

#include "tools/compare/comparison.hpp"

namespace strata::compare {

// `words`: arguments of `strata compare`.
Provenance provenance_of(const std::vector<std::string>& words);

}  // namespace strata::compare
