// Signs and one scale: what 1-bit Adam sends of a tensor.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata::onebit_adam {

// Of `elements` signs, 8 in a byte.
inline std::int64_t sign_bytes(std::int64_t elements) {
  return (elements + 7) / 8;
}

// A bit is set where the value is 0 or more. `bytes`: uint8 [sign_bytes(elements)].
void write_signs(const at::Tensor& values, const at::Tensor& bytes);
// 1 or -1, fp32 [elements].
at::Tensor read_signs(const at::Tensor& bytes, std::int64_t elements);

// The scale with which signs have the length of the values that count: |values| / sqrt(how many). 0 if none does. Both
// fp32; `counts` is 1 or 0. fp32 [1].
at::Tensor scale_of(const at::Tensor& values, const at::Tensor& counts);

}  // namespace strata::onebit_adam
