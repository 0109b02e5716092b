// Carries out a drawn run with the plugin, call by call.
#pragma once
#include "conformance/partitioner/course.hpp"
#include "conformance/runner/case.hpp"

namespace strata::conformance {

// Returns the allowed relative difference of results: 0, or the bound of the manifest's equivalence. Throws Skip for a
// simulated one.
double tolerance_of(Subject& subject, const fakes::OptionTexts& options);

// Checks groups, slices and lookahead, which the plugin returns on meta tensors before any computation. Returns the
// lookahead. Throws Failure.
Lookahead check_layout(Subject& subject, const PartitionWorld& world);
// Carries out the run. Ranks are threads; each also makes the same calls in a dry run, which must count the same.
// Throws Failure.
void carry_out(Subject& subject, const PartitionWorld& world, double tolerance);

}  // namespace strata::conformance
