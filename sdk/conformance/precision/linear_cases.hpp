#pragma once
#include <vector>

#include "runner/case.hpp"

namespace strata::conformance {

// A precision policy's matmul against one in float64.
std::vector<Case> linear_cases();

}  // namespace strata::conformance
