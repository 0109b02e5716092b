// bf16 matrices multiplied into fp32; at:: has no operator for it.
#pragma once
#include <ATen/core/Tensor.h>

namespace strata {

// Whether the processor multiplies bf16 faster than fp32. Of the x86 processors those with AVX512-BF16 do, but Intel's
// since Sapphire Rapids only with AMX: without it they multiply bf16 at half the speed of fp32.
bool multiplies_bf16_faster();

// target += left right or, with `first`, target = left right, for a target of fp32 and bf16 matrices; the product is
// not rounded to bf16 between. Returns false, and does nothing, where MKL is not in libtorch, or the processor none of
// Intel's that multiply bf16 faster than fp32. Counts no memory: what MKL packs is not libtorch's.
bool add_bf16_product(const at::Tensor& target, const at::Tensor& left, const at::Tensor& right, bool first);

}  // namespace strata
