#pragma once
#include <ATen/core/Tensor.h>

#include <strata/toolbox/linear_cross_entropy.hpp>

namespace strata {

// The sum over rows of the cross entropy of logits [rows, vocabulary] against targets [rows] (ignored_target counts for
// nothing), 0-dimensional, fp32 (fp64 for fp64 logits). With `gradient` the logits become their gradient, seed (softmax
// - one_hot(target)), in place, rounded once; without, their contents are lost. `seed` is 0-dimensional, on the device
// of the logits; undefined: 1. On meta tensors only the result is made.
at::Tensor softmax_gradient(const at::Tensor& logits, const at::Tensor& targets, bool gradient, const at::Tensor& seed);

// The same of a part of each row's logits, of which the other ranks of the group have the rest; targets are numbers in
// the whole vocabulary. All ranks get the loss of all. [collective]
at::Tensor softmax_gradient_in_parts(const at::Tensor& logits, const at::Tensor& targets, bool gradient,
                                     const at::Tensor& seed, const VocabularyPart& part);

}  // namespace strata
