// Matrix products in the dtype of their tensors.
//
// [Note: 16-bit products] libtorch multiplies 16-bit matrices element by element, 5 to 100 times slower than fp32, on
// processors without arithmetic for their format: fp16 on most, bf16 on x86 processors without AVX512-BF16. Intel's
// since Sapphire Rapids, if a virtual machine hides their AMX, multiply bf16 at half the speed of fp32. On all of these
// the functions convert to fp32, multiply and accumulate in fp32, and round each element of the result once. fp16 is
// computed this way on every CPU, so that results do not depend on the processor; bf16 is left to libtorch where that
// is faster. The scratch buffer is 1.4 MiB per thread, and no tensor. All other tensors, including those on a GPU, use
// libtorch's own product.
#pragma once
#include <ATen/core/Tensor.h>

namespace strata {

// True if such tensors are multiplied in fp32 on this processor: see [Note: 16-bit products]. Also used by attention().
bool multiplied_in_fp32(const at::Tensor& tensor);

// Returns left [m, k] times right [k, n], of one dtype. Not differentiable: for use inside an operator's own forward
// and backward.
at::Tensor product(const at::Tensor& left, const at::Tensor& right);
// Writes left times right to `result` [m, n], of the dtype of left. Not differentiable.
void product_out(const at::Tensor& result, const at::Tensor& left, const at::Tensor& right);
// Computes target += left right or, with `first`, target = left right. An fp32 target of 16-bit matrices (a gradient)
// receives the unrounded product if it is computed in fp32 anyway, or if MKL adds bf16 products to fp32: on Intel's
// processors that multiply bf16 faster than fp32, in a libtorch with MKL. Elsewhere the product is first rounded to
// left's dtype.
void add_product(const at::Tensor& target, const at::Tensor& left, const at::Tensor& right, bool first = false);

// Returns x [..., in] times w [out, in] transposed, plus b [out] (may be undefined). Differentiable, also on meta
// tensors, with the same memory counted.
at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b);

}  // namespace strata
