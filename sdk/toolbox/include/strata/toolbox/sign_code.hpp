// Bits of a tensor, 8 in a byte; and signs with one scale, which is what 1-bit Adam sends of a tensor.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata::toolbox {

// Of `elements` bits.
inline std::int64_t bit_bytes(std::int64_t elements) {
  return (elements + 7) / 8;
}

// `set`: bool [n]. `bytes`: uint8 [bit_bytes(n)]; bits behind the n-th are 0.
void write_bits(const at::Tensor& set, const at::Tensor& bytes);
// bool [elements].
at::Tensor read_bits(const at::Tensor& bytes, std::int64_t elements);

// A bit is set where the value is 0 or more.
void write_signs(const at::Tensor& values, const at::Tensor& bytes);
// 1 or -1, fp32 [elements].
at::Tensor read_signs(const at::Tensor& bytes, std::int64_t elements);

// The scale with which signs have the length of the values that count: |values| / sqrt(how many). 0 if none does. Both
// fp32; `counts` is 1 or 0. fp32 [1].
at::Tensor scale_of(const at::Tensor& values, const at::Tensor& counts);

}  // namespace strata::toolbox
