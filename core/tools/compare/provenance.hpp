// Place and time of a comparison.
#pragma once
#include <string>
#include <vector>

#include "tools/compare/comparison.hpp"

namespace strata::cli {

// `words`: arguments of `strata compare`.
report::Provenance provenance_of(const std::vector<std::string>& words);

}  // namespace strata::cli
