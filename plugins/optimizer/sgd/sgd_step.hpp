#pragma once
#include <strata/optimizer.hpp>

namespace strata::sgd {

struct SgdHyperparameters {
  double momentum = 0.0;
  double dampening = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
};

// torch.optim.SGD in fp32, with g = gradient x gradient_factor + weight_decay p:
//   b = momentum b + (1 - dampening) g, in the first update b = g;  p -= lr (nesterov ? g + momentum b : b)
// piece.state is b, or empty without momentum. One pass over all pieces in host memory, others as sgd_reference_step.
// If scalars.apply is 0, nothing is written.
void sgd_step(std::span<Piece* const> pieces, const StepScalars& scalars, const SgdHyperparameters& hyperparameters);

// The same with libtorch's operators, on any device and dtype, no host synchronisation.
void sgd_reference_step(const Piece& piece, const StepScalars& scalars, const SgdHyperparameters& hyperparameters);

}  // namespace strata::sgd
