// Products of 16-bit matrices in fp32: see [Note: 16-bit products].
#pragma once
#include <ATen/core/Tensor.h>

namespace strata {

// Instructions that a product is compiled for: those that every processor of the build has, AVX2 with FMA, AVX-512.
enum class Vectors { Any, Avx2, Avx512 };
Vectors widest_vectors();  // of this processor

// result = left right + bias or, with `add`, result += left right. left [m, k] and right [k, n] are of one 16-bit dtype
// and on the CPU, or meta tensors, without computing; result [m, n] is of theirs, and then each element is
// rounded once, or in fp32; bias [n] may be undefined. The scratch buffer is 1.4 MiB a thread. The bits do not depend
// on how many threads there are.
void widened_product(const at::Tensor& result, const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias,
                     bool add, Vectors code = widest_vectors());

}  // namespace strata
