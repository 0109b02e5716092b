#include "half_precision.hpp"

#include <strata/vector_clones.hpp>

#include <algorithm>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace strata {

STRATA_VECTOR_CLONES void widen(const at::Half* from, float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = widened(from[i]);
}

STRATA_VECTOR_CLONES void widen(const at::BFloat16* from, float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = widened(from[i]);
}

STRATA_VECTOR_CLONES void narrow(const float* from, at::Half* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) round_to(to[i], from[i]);
}

STRATA_VECTOR_CLONES void narrow(const float* from, at::BFloat16* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) round_to(to[i], from[i]);
}

#if defined(__x86_64__)
STRATA_VECTOR_CLONES void narrow_past_caches(const float* from, at::BFloat16* to, std::int64_t count) {
  constexpr std::int64_t line = 64 / sizeof(at::BFloat16), store = sizeof(__m128i) / sizeof(at::BFloat16);
  const auto past_line = reinterpret_cast<std::uintptr_t>(to) % 64 / sizeof(at::BFloat16);
  std::int64_t i = past_line == 0 ? 0 : std::min(count, line - static_cast<std::int64_t>(past_line));
  for (std::int64_t k = 0; k < i; ++k) round_to(to[k], from[k]);
  for (; i + line <= count; i += line) {
    alignas(64) at::BFloat16 values[line];
    for (std::int64_t k = 0; k < line; ++k) round_to(values[k], from[i + k]);
    for (std::int64_t k = 0; k < line; k += store)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i + k), _mm_load_si128(reinterpret_cast<__m128i*>(values + k)));
  }
  for (; i < count; ++i) round_to(to[i], from[i]);
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
