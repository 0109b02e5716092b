#pragma once
#include <ATen/core/Tensor.h>

namespace strata {

// (x - mean) / sqrt(variance + epsilon) * weight + bias over the last dimension of x [..., n]; weight and bias [n].
// Differentiable, also on meta tensors. Statistics are fp32 whatever the dtype of x (fp64 for fp64), and so are the
// gradients of weight and bias that are added to a fp32 .grad (see [Note: gradients in place]). Keeps x and two numbers
// a row for backward.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon);

}  // namespace strata
