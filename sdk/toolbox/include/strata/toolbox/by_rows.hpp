#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace strata {

// f(x), of which each row is a function of one row of x: [rows, n] to [rows, m]. It is computed for `chunk` rows at a
// time, and nothing of it is kept for backward but x: a chunk is computed again there, just before its gradient. So
// what f keeps for backward exists for one chunk only. 0: all rows at once, and kept.
//
// Differentiable in x, also on meta tensors. Weights that f uses must get their gradients by ModelContext::linear;
// `weight` is one of them, from which autograd learns that the result depends on weights. f has to stay valid until
// backward.
at::Tensor by_rows(const at::Tensor& x, std::int64_t chunk, const at::Tensor& weight,
                   const std::function<at::Tensor(const at::Tensor&)>& f);

}  // namespace strata
