#pragma once
#include <bit>
#include <cstdint>

namespace strata {

// e^x for x <= 0 to about one unit in the last place, without branches; NaN for NaN. Below -70 it is 0, which no fp32
// sum notices: then a gradient, e^x over a sum, is never a denormal number, which would slow the matmuls that read it
// by half.
inline float exponential(float x) {
  const float clamped = x < -70.0F ? -70.0F : x;
  const float shifted = clamped * 1.44269504F + 12582912.0F;  // adding 1.5 x 2^23 rounds to an integer
  const float exponent = shifted - 12582912.0F;
  const float r = (clamped - exponent * 0.693359375F) + exponent * 2.12194440e-4F;
  const float high = ((1.9875691500e-4F * r + 1.3981999507e-3F) * r + 8.3334519073e-3F) * r + 4.1665795894e-2F;
  const float mantissa = ((high * r + 1.6666665459e-1F) * r + 5.0000001201e-1F) * r * r + r + 1.0F;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(shifted)
                             << 23;  // the integer, where a float has its exponent
  const float result = std::bit_cast<float>(std::bit_cast<std::uint32_t>(mantissa) + bits);
  return x < -70.0F ? 0.0F : (x == x ? result : x);
}

}  // namespace strata
