#pragma once
#include <ATen/core/Tensor.h>

namespace strata {

struct NormGradients {
  at::Tensor x;     // as x
  at::Tensor sums;  // fp32 [2, n]: those of weight and bias
};

// [Note: sums of norms] libtorch's CPU kernel of layer norm adds up the gradients of weight and bias in the dtype of x,
// one sum a thread. In bf16 a sum of 2048 rows is then off by 5 %, of 16384 by 14 %, and in every dtype it depends on
// the number of threads. Here they are summed in fp32, by blocks of rows first.
//
// Of y = (x - mean) * scale * weight + bias over the last dimension, with mean and scale from x. x and dy [..., n], on
// the CPU or meta; scale and mean fp32, one number a row; an undefined mean is 0 and not subtracted (rms_norm).
NormGradients norm_gradients(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean, const at::Tensor& scale,
                             const at::Tensor& weight);

}  // namespace strata
