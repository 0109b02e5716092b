#pragma once
#include <strata/optimizer.hpp>

namespace strata::adamw {

struct AdamwHyperparameters {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
};

// torch.optim.AdamW in fp32, with g = gradient x gradient_factor and t = updates + 1:
//   p *= 1 - lr * weight_decay;  m += (1 - beta1)(g - m);  v = beta2 v + (1 - beta2) g^2
//   p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
// piece.state is m, v. One pass over host memory for all pieces. If scalars.apply is 0, nothing is written, whatever
// the gradient holds.
void adamw_step(std::span<Piece* const> pieces, const StepScalars& scalars,
                const AdamwHyperparameters& hyperparameters);

// True if the device plugin implements strata::adamw_step (<strata/operators.hpp>) and it supports this piece: device
// memory, contiguous, master and state fp32, gradient and parameter fp32, bf16 or fp16.
bool takes_operator_step(const Piece& piece);

// The same with that operator: one pass over device memory, the same bits, no host synchronisation.
void adamw_operator_step(const Piece& piece, const StepScalars& scalars, const AdamwHyperparameters& hyperparameters);

// The same with libtorch's operators, on any device and dtype, no host synchronisation.
void adamw_reference_step(const Piece& piece, const StepScalars& scalars, const AdamwHyperparameters& hyperparameters);

}  // namespace strata::adamw
