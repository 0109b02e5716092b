// Pass 4: gradient reductions and the end of the step.
#pragma once
#include "program/parameter_use.hpp"

namespace strata::runtime {

// Each trainable flat parameter is reduced once per micro-batch: after the last instruction of that micro-batch that
// writes its gradient, in any layer that uses it. BorrowGradient precedes the first that does after the previous
// Reduce. So a split backward holds a full gradient of a deferred parameter only while BackwardWeight computes it. If
// micro-batches overlap (ties between chunks), they share the buffer: a Reduce then includes what the others have
// accumulated so far, and the total is the same.
Program add_reduction(const Program& program, const ParameterUse& use);

// Appends FinishGradients, Norm, the rounds of the optimizer's update and a Publish for each trainable flat parameter,
// in the order in which the next step needs them. A round is an Update for each of them, after a SumStatistics if
// `sums_of_round` says that it begins with sums.
Program add_step(const Program& program, const ParameterUse& use, const std::vector<bool>& sums_of_round);

}  // namespace strata::runtime
