#pragma once
#include <ATen/core/Tensor.h>

namespace strata {

// Rows of weight [vocabulary, n] by tokens (int64, any shape): [..., n] in the weight's dtype. Differentiable, also on
// meta tensors. Throws UserError naming the token when one is outside the vocabulary (checked where tokens are in host
// memory; a GPU's kernel traps). Keeps nothing for backward, which adds into the weight's .grad row by row: no second
// table (see [Note: gradients in place]); rows are added in the order of tokens, so equal inputs give equal bits.
at::Tensor embedding_rows(const at::Tensor& weight, const at::Tensor& tokens);

}  // namespace strata
