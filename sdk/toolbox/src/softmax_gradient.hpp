#pragma once
#include <ATen/core/Tensor.h>

namespace strata {

// The sum over rows of the cross entropy of logits [rows, vocabulary] against targets [rows] (ignored_target counts for
// nothing), 0-dimensional, fp32 (fp64 for fp64 logits). With a `seed` other than 0 the logits become their gradient,
// seed (softmax - one_hot(target)), in place, rounded once; without, their contents are lost. On meta tensors only the
// result is made.
at::Tensor softmax_gradient(const at::Tensor& logits, const at::Tensor& targets, double seed);

}  // namespace strata
