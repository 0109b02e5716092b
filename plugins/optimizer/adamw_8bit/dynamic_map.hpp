// The 256 numbers of 8-bit optimizers ("8-bit Optimizers via Block-wise Quantization", arXiv:2110.02861), as in
// bitsandbytes. A block of values is divided by its largest magnitude, and each quotient rounded to the nearest number.
//
// In the decade from 10^(i-7) to 10^(i-6), i = 0..6, there are 2^i magnitudes with either sign, or 2^(i+1) without: the
// middles of equal parts of it. With them there are 0 and 1. Codes are in ascending order.
#pragma once
#include <array>
#include <cstdint>

namespace strata::adamw_8bit {

inline constexpr std::int64_t block_elements = 256;

// The rank of a magnitude counts the map's magnitudes from 0 to 1; with a sign the code is 127 + rank, or
// 127 - rank and at least 0, because -1 is not in the map.
// In the last decade that begins at or below a magnitude a, with `count` magnitudes (1 in the eighth):
//   rank = floor(max(min(a * factor + count * 8/9, 2 * count - 1), count)) - below
// Below the first decade it is 0.
struct DynamicMap {
  bool has_sign = false;
  int below = 0;                     // 1 without a sign
  std::array<float, 256> numbers{};  // by code
  std::array<float, 8> from{};       // where numbers of this decade become the nearest
  std::array<float, 8> factor{};
  std::array<float, 8> count{};
};
const DynamicMap& signed_map();
const DynamicMap& unsigned_map();

// One block, of at most block_elements: values = numbers[code] * scale, and back. encode() returns the scale, the
// largest magnitude; 0, and codes of 0, if that is not a normal number.
void decode(const DynamicMap& map, const std::uint8_t* codes, float scale, float* values, std::int64_t count);
float encode(const DynamicMap& map, const float* values, std::uint8_t* codes, std::int64_t count);

}  // namespace strata::adamw_8bit
