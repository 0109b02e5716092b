// Bits of a tensor, 8 per byte; and signs with one scale, the code of 1-bit Adam.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata::toolbox {

// Returns the number of bytes of `elements` bits.
inline std::int64_t bit_bytes(std::int64_t elements) {
  return (elements + 7) / 8;
}

// Writes `set`, bool [n], to `bytes`, uint8 [bit_bytes(n)]; bits after the n-th are 0.
void write_bits(const at::Tensor& set, const at::Tensor& bytes);
// Reads bits into bool [elements].
at::Tensor read_bits(const at::Tensor& bytes, std::int64_t elements);

// Writes a bit for each value, set if it is 0 or more.
void write_signs(const at::Tensor& values, const at::Tensor& bytes);
// Reads signs into 1 or -1, fp32 [elements].
at::Tensor read_signs(const at::Tensor& bytes, std::int64_t elements);

// Returns the scale, fp32 [1], at which signs have the norm of the values that count: |values| / sqrt(number); 0 if
// none counts. Both inputs fp32; `counts` is 1 or 0.
at::Tensor scale_of(const at::Tensor& values, const at::Tensor& counts);

}  // namespace strata::toolbox
