// Between 16-bit formats and fp32, in vector code.
#pragma once
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <bit>
#include <cstdint>

namespace strata {

// One number, for loops that convert on the way.
inline float widened(at::Half number) {
  return c10::detail::fp16_ieee_to_fp32_value(number.x);
}
inline float widened(at::BFloat16 number) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(number.x) << 16);
}
// To the nearest, ties to even; NaN stays NaN.
inline void round_to(at::Half& to, float number) {
  to.x = c10::detail::fp16_ieee_from_fp32_value(number);
}
inline void round_to(at::BFloat16& to, float number) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(number);
  const std::uint32_t nearest = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  to.x = static_cast<std::uint16_t>(number == number ? nearest : 0x7FC0U);
}

void widen(const at::Half* from, float* to, std::int64_t count);
void widen(const at::BFloat16* from, float* to, std::int64_t count);
// As round_to.
void narrow(const float* from, at::Half* to, std::int64_t count);
void narrow(const float* from, at::BFloat16* to, std::int64_t count);
// The same, stored past the caches, which spares a read of memory that is only written. Other threads see it after this
// one has called fence_stores().
void narrow_past_caches(const float* from, at::BFloat16* to, std::int64_t count);
void fence_stores();

}  // namespace strata
