#pragma once
#include <ATen/core/Tensor.h>

namespace strata {

// Computes x / sqrt(mean(x^2) + epsilon) * weight over the last dimension of x [..., n]; weight [n] (Zhang and
// Sennrich, arXiv 1910.07467). In half precision the quotient is rounded before the product, as Hugging Face's Llama
// does. Differentiable, also on meta tensors; computed in fp32 for every dtype except fp64. Gradients of weight are
// fp32 if its .grad is (see [Note: gradients in place]). Saves x and one number per row for backward.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

}  // namespace strata
