#pragma once
#include <strata/toolbox/adam_formula.hpp>

namespace strata::adamw {

using AdamwHyperparameters = AdamHyperparameters;

// torch.optim.AdamW in fp32, or torch.optim.Adam where the hyperparameters are not `decoupled`: see AdamFormula.
// piece.state is m, v. One pass over host memory for all pieces. If scalars.apply is 0, nothing is written, for any
// the gradient holds.
void adamw_step(std::span<Piece* const> pieces, const StepScalars& scalars,
                const AdamwHyperparameters& hyperparameters);

// True if the device plugin implements strata::adamw_step (<strata/operators.hpp>) and it supports this piece: device
// memory, contiguous, master and state fp32, gradient and parameter fp32, bf16 or fp16. It is AdamW.
bool takes_operator_step(const Piece& piece);

// AdamW with that operator: one pass over device memory, the same bits, no host synchronisation.
void adamw_operator_step(const Piece& piece, const StepScalars& scalars, const AdamwHyperparameters& hyperparameters);

// The same with libtorch's operators, on any device and dtype, no host synchronisation.
void adamw_reference_step(const Piece& piece, const StepScalars& scalars, const AdamwHyperparameters& hyperparameters);

// Each piece by the fastest of these that takes it.
void step(std::span<Piece* const> pieces, const StepScalars& scalars, const AdamwHyperparameters& hyperparameters);

}  // namespace strata::adamw
