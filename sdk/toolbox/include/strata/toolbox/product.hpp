// Matrix products in the dtype of their tensors.
//
// [Note: fp16 products] On CPUs without native fp16 arithmetic, libtorch multiplies fp16 matrices element by element,
// 10 to 60 times slower than fp32. On the CPU these functions therefore convert blocks to fp32, multiply and accumulate
// there, and round each element of the result to fp16 once. They do so on every CPU, so that results do not depend on
// the processor. The scratch buffer is at most 3 MiB; meta tensors count it too, since their real device is unknown.
// All other tensors, including those on a GPU, use libtorch's own product.
#pragma once
#include <ATen/core/Tensor.h>

namespace strata {

// left [m, k] times right [k, n], of one dtype. Not differentiable, like the next two: for use inside an operator's own
// forward and backward.
at::Tensor product(const at::Tensor& left, const at::Tensor& right);
// The same into `result` [m, n], of the dtype of left.
void product_out(const at::Tensor& result, const at::Tensor& left, const at::Tensor& right);
// target += left right. If target has another dtype than left (a gradient in fp32), the product is rounded to left's
// dtype first.
void add_product(const at::Tensor& target, const at::Tensor& left, const at::Tensor& right);

// x [..., in] times w [out, in] transposed, plus b [out] (may be undefined). Differentiable, also on meta tensors,
// where it counts the same memory.
at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b);

}  // namespace strata
