#pragma once
#include "conformance/runner/case.hpp"

namespace strata::conformance::offload_checks {

// drawn.cpp: what was written is read.
void drawn(Subject& subject);
// large.cpp
void three_gibibytes(Subject& subject);

}  // namespace strata::conformance::offload_checks
