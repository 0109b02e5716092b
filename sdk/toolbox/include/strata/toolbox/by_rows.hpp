#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace strata {

// Returns f(x), [rows, n] to [rows, m], for an f that maps each row separately. Computes `chunk` rows at a time and
// saves only x for backward, which computes each chunk again just before its gradient. So the tensors that f saves for
// backward exist for one chunk only. chunk 0: all rows at once, saved for backward.
//
// Differentiable in x, also on meta tensors. Weights that f uses must get their gradients by ModelContext::linear;
// `weight` is one of them, so that autograd records that the result depends on weights. f must stay valid until
// backward.
at::Tensor by_rows(const at::Tensor& x, std::int64_t chunk, const at::Tensor& weight,
                   const std::function<at::Tensor(const at::Tensor&)>& f);

}  // namespace strata
