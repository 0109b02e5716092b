// Products of matrices, in the dtype of their tensors.
//
// [Note: fp16 products] libtorch multiplies fp16 matrices on a processor without fp16 arithmetic of its own element by
// element, 10 to 60 times slower than fp32. On the host's processors these functions therefore convert blocks to fp32,
// multiply and add up there, and round each element of the result to fp16 once. It is the same on every processor, so
// that a run does not depend on which one it meets. The scratch is at most 3 MiB, whatever the matrices; meta tensors
// take it too, as nothing says which device they stand for. All other tensors, those on a GPU too, take libtorch's own
// way.
#pragma once
#include <ATen/core/Tensor.h>

namespace strata {

// left [m, k] times right [k, n], of one dtype. Not differentiable: for what an operator does in its own forward and
// backward. So are the next two.
at::Tensor product(const at::Tensor& left, const at::Tensor& right);
// The same into `result` [m, n], of the dtype of left.
void product_out(const at::Tensor& result, const at::Tensor& left, const at::Tensor& right);
// target += left right. A target of another dtype than left's (a gradient in fp32) is added the rounded product.
void add_product(const at::Tensor& target, const at::Tensor& left, const at::Tensor& right);

// x [..., in] times w [out, in] transposed, plus b [out] (may be undefined). Differentiable, also on meta tensors,
// where it takes the same memory.
at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b);

}  // namespace strata
