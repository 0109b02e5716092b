#pragma once
#include <vector>

#include "runner/case.hpp"

namespace strata::conformance {

// Whether a policy's products depend on anything but their operands and the steps before.
std::vector<Case> repeat_cases();

}  // namespace strata::conformance
