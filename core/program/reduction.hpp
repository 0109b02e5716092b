// Pass 4: gradients, and the end of the step.
#pragma once
#include "program/parameter_use.hpp"

namespace strata::runtime {

// Each trainable flat parameter is reduced once per micro-batch: after the last Backward, BackwardInput or
// BackwardWeight of that micro-batch in any layer that uses it. BorrowGradient precedes the first compute that may
// write into the gradient since the Reduce before. Where micro-batches overlap (split backwards, ties between chunks)
// they share the buffer: a Reduce then takes along what the others have put into it, and the sum over all is the same.
Program add_reduction(const Program& program, const ParameterUse& use);

// FinishGradients, Norm, Step, and a Publish for each trainable flat parameter, in the order in which the next step
// needs them.
Program add_step(const Program& program, const ParameterUse& use);

}  // namespace strata::runtime
