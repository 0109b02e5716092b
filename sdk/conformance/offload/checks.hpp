#pragma once
#include "runner/case.hpp"

namespace strata::conformance::offload_checks {

// drawn.cpp: what was written is read.
void drawn(Subject& subject);
// dropped.cpp
void limits_are_sane(Subject& subject);
void dropped_transfer(Subject& subject);
// refusals.cpp: calls that must be refused.
void unaligned(Subject& subject);
void out_of_range_refused(Subject& subject);
void out_of_space(Subject& subject);
// resources.cpp: leaks.
void free_gives_back(Subject& subject);
void leaks_nothing(Subject& subject);
// large.cpp
void three_gibibytes(Subject& subject);

}  // namespace strata::conformance::offload_checks
