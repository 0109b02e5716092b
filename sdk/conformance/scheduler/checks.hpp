#pragma once
#include "runner/case.hpp"

namespace strata::conformance::scheduler_checks {

// drawn.cpp
void drawn_pipelines_are_right(Subject& subject);

}  // namespace strata::conformance::scheduler_checks
