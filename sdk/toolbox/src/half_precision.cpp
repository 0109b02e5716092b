#include "half_precision.hpp"

#include <strata/vector_clones.hpp>

#include <bit>

namespace strata {

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
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(from[i]);
    const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
    to[i].x = static_cast<std::uint16_t>(from[i] == from[i] ? rounded : 0x7FC0U);
  }
}

}  // namespace strata
