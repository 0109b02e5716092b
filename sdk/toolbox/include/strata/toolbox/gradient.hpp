#pragma once
#include <ATen/core/Tensor.h>

namespace strata {

// [Note: gradients in place] Before backward, the engine sets each parameter's .grad to its range of a flat buffer,
// often in a wider format than the parameter (fp32 for bf16). The toolbox's operators add to that range themselves,
// which needs no second buffer of the weight's size and no extra rounding, and return no gradient for the weight to
// autograd. If .grad is not set, the gradient goes through autograd. Therefore autograd::grad() with respect to a
// parameter whose .grad is set gives an undefined tensor; clear .grad first.

// True if gradients of `variable` are to be added to variable.grad() in place.
bool accumulates_in_place(const at::Tensor& variable);

// Adds `gradient` to variable.grad() and returns an undefined tensor; returns `gradient` if the variable has no .grad.
at::Tensor accumulate_gradient(const at::Tensor& variable, const at::Tensor& gradient);

}  // namespace strata
