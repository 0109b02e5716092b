// A drawn run of a partitioner with the plugin, call by call.
#pragma once
#include "conformance/partitioner/course.hpp"
#include "conformance/runner/case.hpp"

namespace strata::conformance {

// What results may differ by, relative: 0, or the bound that the manifest's equivalence names. Throws Skip where it is
// simulated.
double tolerance_of(Subject& subject, const fakes::OptionTexts& options);

// Groups, slices and lookahead, which the plugin gives on meta tensors before anything is computed. Throws Failure.
// Gives the lookahead.
Lookahead check_layout(Subject& subject, const PartitionWorld& world);
// Ranks are threads; each also makes the same calls in a dry run, which must count the same. Throws Failure.
void carry_out(Subject& subject, const PartitionWorld& world, double tolerance);

}  // namespace strata::conformance
