#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata {

// Looks up rows of weight [vocabulary, n] by tokens (int64, any shape), as [..., n] in the weight's dtype.
// Differentiable, also on meta tensors. Throws UserError naming a token outside the vocabulary (checked if tokens are
// in host memory; on a GPU the kernel traps). Saves nothing for backward, which adds rows directly into the weight's
// .grad without a second table (see [Note: gradients in place]), in the order of tokens, so equal inputs give equal
// bits.
at::Tensor embedding_rows(const at::Tensor& weight, const at::Tensor& tokens);

// Throws UserError naming a token outside the vocabulary, for tokens in host memory.
void check_tokens(const at::Tensor& tokens, std::int64_t vocabulary);

}  // namespace strata
