#pragma once
#include <vector>

#include "runner/case.hpp"

namespace strata::conformance {

std::vector<Case> layout_cases();  // groups, slices, what is promised
std::vector<Case> value_cases();   // gathered values and summed gradients
std::vector<Case> course_cases();  // orders of calls, slots, bytes, the end

}  // namespace strata::conformance
