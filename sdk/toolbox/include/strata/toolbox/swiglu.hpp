#pragma once
#include <ATen/core/Tensor.h>

namespace strata {

// Computes silu(gate) * up, element by element, with silu(x) = x / (1 + e^-x) (Shazeer, arXiv 2002.05202).
// Differentiable, also on meta tensors; in fp32 for every dtype except fp64. Saves only gate and up for backward.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

}  // namespace strata
