// Tensors of bf16 rounded to numbers of 8 bits, each times a scale.
//
// [Note: scales are powers of two] A number of 8 bits has a floating point of its own, so a power of two more or less
// in a tensor's scale changes no rounding but that of numbers near the format's smallest: by less than 2^-17 of the
// tensor's largest in E4M3, 2^-31 in E5M2. So it does not matter that a layout makes other micro-batches, or that a
// tensor-parallel rank scales the part it has. A number of either format, divided by such a scale, is a number of bf16:
// a product of rounded tensors in bf16, accumulated in fp32, is what hardware for 8 bits computes.
#pragma once
#include <ATen/core/Tensor.h>

namespace strata {

// E4M3 is OCP's: 3 bits of mantissa, largest 448, no infinities. E5M2: 2 bits, largest 57344.
struct EightBits {
  at::ScalarType dtype;
  int mantissa;  // bits
  int exponent;  // of the largest number, whose mantissa is 1.75
  int smallest;  // exponent of the smallest normal number

  float largest() const { return 1.75F * static_cast<float>(1 << exponent); }
};
inline constexpr EightBits e4m3{at::ScalarType::Float8_e4m3fn, 3, 8, -6};
inline constexpr EightBits e5m2{at::ScalarType::Float8_e5m2, 2, 15, -14};

// Elements that share a scale where each block has its own: OCP's MX formats.
inline constexpr std::int64_t scaled_together = 32;

// The largest magnitude in x, of any dtype, fp32, 0-dimensional; NaN or infinite where one is.
at::Tensor largest_magnitude(const at::Tensor& x);
// For each, the largest power of two that takes it to a number of the format, fp32; at most 2^100, so that what is
// divided by it is a normal number. NaN for what is not finite.
at::Tensor power_of_two(const at::Tensor& magnitudes, const EightBits& format);

// x scale rounded to the format, half to even, and divided by scale, in bf16; what exceeds the format's largest number
// becomes that, NaN stays NaN. x is of bf16, scale fp32 and 0-dimensional: where it is NaN, all of the result is.
at::Tensor rounded(const at::Tensor& x, const at::Tensor& scale, const EightBits& format);
// The same with a scale of its own, by power_of_two, for each block of neighbours in a row; the last may be shorter. x
// [rows, columns].
at::Tensor rounded_by_blocks(const at::Tensor& x, const EightBits& format);

// rounded() in two steps, between which a number of x is a byte: contiguous tensors, `bytes` uint8. The scale is NaN
// where a number of x is not finite.
void to_bytes(const at::Tensor& x, const at::Tensor& scale, const EightBits& format, const at::Tensor& bytes);
void from_bytes(const at::Tensor& bytes, const at::Tensor& scale, const EightBits& format, const at::Tensor& into);

// On the CPU the functions above are loops; of meta tensors they give the result's memory. These are the same by
// libtorch's operators and conversions, which they use elsewhere, bit for bit.
namespace by_operators {
at::Tensor largest_magnitude(const at::Tensor& x);
at::Tensor power_of_two(const at::Tensor& magnitudes, const EightBits& format);
// x scale in the format itself.
at::Tensor converted(const at::Tensor& x, const at::Tensor& scale, const EightBits& format);
at::Tensor rounded(const at::Tensor& x, const at::Tensor& scale, const EightBits& format);
at::Tensor rounded_by_blocks(const at::Tensor& x, const EightBits& format);
void to_bytes(const at::Tensor& x, const at::Tensor& scale, const EightBits& format, const at::Tensor& bytes);
void from_bytes(const at::Tensor& bytes, const at::Tensor& scale, const EightBits& format, const at::Tensor& into);
}  // namespace by_operators

}  // namespace strata
