#pragma once
#include "conformance/runner/case.hpp"

namespace strata::conformance::offload_checks {

// drawn.cpp: reads return written bytes.
void drawn(Subject& subject);
// large.cpp
void three_gibibytes(Subject& subject);

}  // namespace strata::conformance::offload_checks
