#pragma once
#include <ATen/core/Tensor.h>

namespace strata {

// Computes (x - mean) / sqrt(variance + epsilon) * weight + bias over the last dimension of x [..., n]; both [n].
// Differentiable, also on meta tensors. Statistics are fp32 for every dtype of x (fp64 for fp64). Gradients of weight
// and bias are fp32 if their .grad is (see [Note: gradients in place]). Saves x and two numbers per row for backward.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon);

}  // namespace strata
