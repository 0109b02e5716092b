#pragma once
#include <ATen/core/Tensor.h>

namespace strata {

// silu(gate) * up, element by element, with silu(x) = x / (1 + e^-x) (Shazeer, arXiv 2002.05202). Differentiable, also
// on meta tensors; in fp32 inside for every dtype but fp64. Keeps gate and up for backward, and nothing else.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

}  // namespace strata
