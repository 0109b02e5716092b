#include "half_precision.hpp"

#include <strata/vector_clones.hpp>

#include <algorithm>
#include <bit>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace strata {

namespace {
inline at::BFloat16 rounded(float number) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(number);
  const std::uint32_t nearest = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  return {static_cast<std::uint16_t>(number == number ? nearest : 0x7FC0U), at::BFloat16::from_bits()};
}
}  // namespace

STRATA_VECTOR_CLONES void widen(const at::Half* from, float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = c10::detail::fp16_ieee_to_fp32_value(from[i].x);
}

STRATA_VECTOR_CLONES void widen(const at::BFloat16* from, float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = std::bit_cast<float>(static_cast<std::uint32_t>(from[i].x) << 16);
}

STRATA_VECTOR_CLONES void narrow(const float* from, at::Half* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i].x = c10::detail::fp16_ieee_from_fp32_value(from[i]);
}

STRATA_VECTOR_CLONES void narrow(const float* from, at::BFloat16* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = rounded(from[i]);
}

#if defined(__x86_64__)
STRATA_VECTOR_CLONES void narrow_past_caches(const float* from, at::BFloat16* to, std::int64_t count) {
  constexpr std::int64_t line = 64 / sizeof(at::BFloat16), store = sizeof(__m128i) / sizeof(at::BFloat16);
  const auto past_line = reinterpret_cast<std::uintptr_t>(to) % 64 / sizeof(at::BFloat16);
  std::int64_t i = past_line == 0 ? 0 : std::min(count, line - static_cast<std::int64_t>(past_line));
  for (std::int64_t k = 0; k < i; ++k) to[k] = rounded(from[k]);
  for (; i + line <= count; i += line) {
    alignas(64) at::BFloat16 values[line];
    for (std::int64_t k = 0; k < line; ++k) values[k] = rounded(from[i + k]);
    for (std::int64_t k = 0; k < line; k += store)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i + k), _mm_load_si128(reinterpret_cast<__m128i*>(values + k)));
  }
  for (; i < count; ++i) to[i] = rounded(from[i]);
}

void fence_stores() {
  _mm_sfence();
}
#else
void narrow_past_caches(const float* from, at::BFloat16* to, std::int64_t count) {
  narrow(from, to, count);
}

void fence_stores() {}
#endif

}  // namespace strata
