// bf16 matrices multiplied into fp32, of which at:: has no operator.
#pragma once
#include <ATen/core/Tensor.h>

namespace strata {

// Whether the processor has instructions for bf16 products.
bool multiplies_bf16();

// target += left right or, with `first`, target = left right, for a target of fp32 and bf16 matrices; the product is
// not rounded to bf16 between. Returns false, and does nothing, where MKL is not in libtorch, or the processor none of
// those that it has kernels for, Intel's with AVX512-BF16. Counts no memory: what MKL packs is not libtorch's.
bool add_bf16_product(const at::Tensor& target, const at::Tensor& left, const at::Tensor& right, bool first);

}  // namespace strata
