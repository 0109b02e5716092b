// The two kinds of drawn worlds for precision policies, as functions for search().
#pragma once
#include <strata/precision_policy.hpp>

#include "conformance/drawn/search.hpp"

namespace strata::conformance::precision_checks {

// steps.cpp: verdicts, loss scales and formats, over drawn overflows.
bool steps_are_right(Subject& subject, Draws& draws, const Tell& tell);
// products.cpp: the three products, compared with those in fp64 and those of a second instance.
bool products_are_right(Subject& subject, Draws& draws, const Tell& tell);

}  // namespace strata::conformance::precision_checks
