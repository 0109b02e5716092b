// Matrix products in the dtype of their tensors.
//
// [Note: 16-bit products] libtorch multiplies 16-bit matrices element by element, 5 to 100 times slower than fp32, on
// processors without arithmetic for their format: fp16 on most, bf16 on x86 processors without AVX512-BF16. Intel's
// since Sapphire Rapids, where a virtual machine hides their AMX, multiply bf16 at half the speed of fp32. On all of
// these the functions convert to fp32, multiply and accumulate in fp32, and round each element of the result once. They
// do so with fp16 on every CPU, so that results do not depend on the processor. bf16 they leave to libtorch where that
// is faster. The scratch buffer is 1.4 MiB a thread, and no tensor. All other tensors, including those on a GPU, use
// libtorch's own product.
#pragma once
#include <ATen/core/Tensor.h>

namespace strata {

// Whether such tensors are multiplied in fp32 on this processor: see [Note: 16-bit products]. attention() asks too.
bool multiplied_in_fp32(const at::Tensor& tensor);

// left [m, k] times right [k, n], of one dtype. Not differentiable, like the next two: for use inside an operator's own
// forward and backward.
at::Tensor product(const at::Tensor& left, const at::Tensor& right);
// The same into `result` [m, n], of the dtype of left.
void product_out(const at::Tensor& result, const at::Tensor& left, const at::Tensor& right);
// target += left right or, with `first`, target = left right. A target in fp32 of 16-bit matrices (a gradient) takes
// the product unrounded where it is in fp32 anyway, and where MKL adds bf16 products to fp32: on Intel's processors
// that multiply bf16 faster than fp32, in a libtorch that holds MKL. Elsewhere the product is rounded to left's dtype
// before.
void add_product(const at::Tensor& target, const at::Tensor& left, const at::Tensor& right, bool first = false);

// x [..., in] times w [out, in] transposed, plus b [out] (may be undefined). Differentiable, also on meta tensors,
// where it counts the same memory.
at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b);

}  // namespace strata
