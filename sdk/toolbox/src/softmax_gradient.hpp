#pragma once
#include <ATen/core/Tensor.h>

#include <strata/toolbox/linear_cross_entropy.hpp>

namespace strata {

// Returns the loss of logits [rows, vocabulary] and targets [rows]. With `gradient` the logits become the gradient of
// loss + auxiliary_loss, seed ((1 + 2 z_loss log_sum) softmax - one_hot(target)), in place, rounded once; without,
// their contents are lost. `seed` is 0-dimensional, on the device of the logits; undefined: 1. On meta tensors only the
// result is made.
TokenLoss softmax_gradient(const at::Tensor& logits, const at::Tensor& targets, const LossTerms& terms, bool gradient,
                           const at::Tensor& seed);

// softmax_gradient() of a part of each row's logits, of which the other ranks of the group have the rest; targets are
// numbers in the whole vocabulary. All ranks get the loss of all. [collective]
TokenLoss softmax_gradient_in_parts(const at::Tensor& logits, const at::Tensor& targets, const LossTerms& terms,
                                    bool gradient, const at::Tensor& seed, const VocabularyPart& part);

// Returns a loss with the members that `terms` request, not filled.
TokenLoss empty_loss(const LossTerms& terms, const at::TensorOptions& options);

}  // namespace strata
