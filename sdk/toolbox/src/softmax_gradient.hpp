// defines: softmax_gradient
#pragma once
#include <ATen/core/Tensor.h>

namespace strata {

// The sum over rows of the cross entropy of logits [rows, vocabulary] against targets [rows] (ignored_target counts for
// nothing), 0-dimensional, fp32 (fp64 for fp64 logits). With `gradient` the logits become their gradient, softmax -
// one_hot(target), in place; without, their contents are lost. On meta tensors only the result is made.
at::Tensor softmax_gradient(const at::Tensor& logits, const at::Tensor& targets, bool gradient);

}  // namespace strata
