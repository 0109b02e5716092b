// Rounding of bf16 tensors to numbers of 8 bits times a scale.
//
// [Note: scales are powers of two] Numbers of 8 bits have an exponent, so another power of two as a tensor's scale
// changes only the rounding of numbers near the format's smallest: by less than 2^-17 of the tensor's largest in E4M3,
// 2^-31 in E5M2. So a layout may have other micro-batches, and a tensor-parallel rank may scale its own part. A number
// of either format, divided by such a scale, is exact in bf16: a product of rounded tensors in bf16, accumulated in
// fp32, equals the result of 8-bit hardware.
#pragma once
#include <ATen/core/Tensor.h>

namespace strata {

// Formats. E4M3 is OCP's: 3 bits of mantissa, largest 448, no infinities. E5M2: 2 bits, largest 57344.
struct EightBits {
  at::ScalarType dtype;
  int mantissa;  // bits
  int exponent;  // exponent of the largest number, whose mantissa is 1.75
  int smallest;  // exponent of the smallest normal number

  float largest() const { return 1.75F * static_cast<float>(1 << exponent); }
};
inline constexpr EightBits e4m3{at::ScalarType::Float8_e4m3fn, 3, 8, -6};
inline constexpr EightBits e5m2{at::ScalarType::Float8_e5m2, 2, 15, -14};

// Number of elements that share a scale in OCP's MX formats.
inline constexpr std::int64_t scaled_together = 32;

// Returns the largest magnitude in x, of any dtype, as fp32, 0-dimensional; NaN or infinite if an element is.
at::Tensor largest_magnitude(const at::Tensor& x);
// Returns, for each magnitude, the largest power of two that scales it into the format, fp32; at most 2^100, so that
// quotients by it are normal numbers. NaN for magnitudes that are not finite.
at::Tensor power_of_two(const at::Tensor& magnitudes, const EightBits& format);

// Returns x scale rounded to the format, half to even, and divided by scale, in bf16; numbers beyond the format's
// largest become it, NaN stays NaN. x is bf16, scale fp32 and 0-dimensional; if scale is NaN, so is all of the result.
at::Tensor rounded(const at::Tensor& x, const at::Tensor& scale, const EightBits& format);
// Rounds x [rows, columns] as rounded() does, with a scale by power_of_two for each block of neighbours in a row; the
// last block may be shorter.
at::Tensor rounded_by_blocks(const at::Tensor& x, const EightBits& format);

// Performs rounded() in two steps, by way of one byte per number of x: contiguous tensors, `bytes` uint8. The scale is
// NaN if a number of x is not finite.
void to_bytes(const at::Tensor& x, const at::Tensor& scale, const EightBits& format, const at::Tensor& bytes);
void from_bytes(const at::Tensor& bytes, const at::Tensor& scale, const EightBits& format, const at::Tensor& into);

// Variants of the functions by libtorch's operators and conversions, bit-equal: used except on the CPU, where the
// functions are loops, and on meta tensors, for which they return the result's memory.
namespace by_operators {
at::Tensor largest_magnitude(const at::Tensor& x);
at::Tensor power_of_two(const at::Tensor& magnitudes, const EightBits& format);
// Returns x scale in the format itself.
at::Tensor converted(const at::Tensor& x, const at::Tensor& scale, const EightBits& format);
at::Tensor rounded(const at::Tensor& x, const at::Tensor& scale, const EightBits& format);
at::Tensor rounded_by_blocks(const at::Tensor& x, const EightBits& format);
void to_bytes(const at::Tensor& x, const at::Tensor& scale, const EightBits& format, const at::Tensor& bytes);
void from_bytes(const at::Tensor& bytes, const at::Tensor& scale, const EightBits& format, const at::Tensor& into);
}  // namespace by_operators

}  // namespace strata
