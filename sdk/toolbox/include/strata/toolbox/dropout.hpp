#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata {

// Returns x with elements set to 0 with this probability (below 1) and the others divided by 1 - probability. An
// element's draw is a function of (key, draw, its number) alone; the elements of x have the numbers first, first + 1,
// ... in row-major order, so numbers by places in the global batch give equal results on every layout. key: see
// MicroBatch::random_key; draw: index of the layer's draw. Differentiable, also on meta tensors; saves nothing for
// backward, which draws again.
at::Tensor dropout(const at::Tensor& x, double probability, const at::Tensor& key, std::int64_t draw,
                   std::int64_t first);

}  // namespace strata
