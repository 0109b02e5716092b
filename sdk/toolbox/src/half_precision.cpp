#include "half_precision.hpp"

#include <strata/vector_clones.hpp>

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace strata {

#if defined(__x86_64__)
namespace {

// The compiler's own vector code for fp16 takes some 25 instructions for a vector; these processors convert with one.
bool converts_half() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("f16c") != 0;
}
constexpr std::int64_t half_lanes = 8;

// Eight at a time; how many were done.
[[gnu::target("avx2,f16c")]] std::int64_t widen_eights(const at::Half* from, float* to, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + half_lanes <= count; i += half_lanes)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  return i;
}

// NaN becomes what round_to makes of it: the instruction would keep more of its bits.
[[gnu::target("avx2,f16c")]] std::int64_t narrow_eights(const float* from, at::Half* to, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + half_lanes <= count; i += half_lanes) {
    const __m256 numbers = _mm256_loadu_ps(from + i);
    const __m256 sign = _mm256_and_ps(numbers, _mm256_set1_ps(-0.0F));
    const __m256 not_a_number = _mm256_or_ps(sign, _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000)));
    const __m256 kept = _mm256_blendv_ps(numbers, not_a_number, _mm256_cmp_ps(numbers, numbers, _CMP_UNORD_Q));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm256_cvtps_ph(kept, _MM_FROUND_TO_NEAREST_INT));
  }
  return i;
}

}  // namespace
#endif

void widen(const at::Half* from, float* to, std::int64_t count) {
  std::int64_t i = 0;
#if defined(__x86_64__)
  if (converts_half()) i = widen_eights(from, to, count);
#endif
  for (; i < count; ++i) to[i] = widened(from[i]);
}

void narrow(const float* from, at::Half* to, std::int64_t count) {
  std::int64_t i = 0;
#if defined(__x86_64__)
  if (converts_half()) i = narrow_eights(from, to, count);
#endif
  for (; i < count; ++i) round_to(to[i], from[i]);
}

STRATA_VECTOR_CLONES void widen(const at::BFloat16* from, float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = widened(from[i]);
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
