#pragma once
#include <ATen/core/Tensor.h>

namespace strata {

// [Note: gradients in place] The engine runs autograd::backward with each parameter's .grad preset to its range of a
// flat buffer, often wider than the parameter (fp32 behind bf16). An operator that adds to that range itself needs no
// second buffer of the weight's size and rounds nothing on the way, so the operators of the toolbox do so whenever the
// weight has a .grad, and return nothing for it to autograd. Without one the gradient takes autograd's way. Therefore:
// autograd::grad() with respect to a parameter whose .grad is set gives an undefined tensor; clear .grad first.

// Whether gradients of `variable` are to be added to variable.grad() in place.
bool accumulates_in_place(const at::Tensor& variable);

// Adds `gradient` to variable.grad() and returns an undefined tensor, or returns `gradient` as the variable has no
// .grad.
at::Tensor accumulate_gradient(const at::Tensor& variable, const at::Tensor& gradient);

}  // namespace strata
