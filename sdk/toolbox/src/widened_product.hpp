// Products of 16-bit matrices in fp32: see [Note: 16-bit products].
#pragma once
#include <ATen/core/Tensor.h>

namespace strata {

// result = left right + bias or, with `add`, result += left right. left [m, k] and right [k, n] are of one 16-bit dtype
// and on the CPU, or meta tensors, of which nothing is made; result [m, n] is of theirs, and then each element is
// rounded once, or in fp32; bias [n] may be undefined. The scratch buffer is 1.4 MiB a thread. The bits do not depend
// on how many threads there are.
void widened_product(const at::Tensor& result, const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias,
                     bool add);

}  // namespace strata
