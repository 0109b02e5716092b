#include "dynamic_map.hpp"

#include <strata/vector_clones.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace strata::adamw_8bit {
namespace {

DynamicMap make_map(bool has_sign) {
  std::vector<double> magnitudes;  // from the smallest, without 0
  DynamicMap map;
  map.has_sign = has_sign;
  map.below = has_sign ? 0 : 1;
  for (int i = 0; i < 7; ++i) {
    const int count = 1 << (has_sign ? i : i + 1);
    const double decade = std::pow(10.0, i - 6), last = magnitudes.empty() ? 0.0 : magnitudes.back();
    for (int k = 0; k < count; ++k) magnitudes.push_back(decade * (0.1 + 0.9 * (k + 0.5) / count));
    const auto number = static_cast<std::size_t>(i);
    map.count[number] = static_cast<float>(count);
    map.factor[number] = static_cast<float>(count / (0.9 * decade));
    map.from[number] = static_cast<float>((last + magnitudes[magnitudes.size() - static_cast<std::size_t>(count)]) / 2);
  }
  map.from[7] = static_cast<float>((magnitudes.back() + 1.0) / 2);
  map.count[7] = has_sign ? 128.0F : 256.0F;
  magnitudes.push_back(1.0);
  std::vector<double> numbers{0.0};
  numbers.insert(numbers.end(), magnitudes.begin(), magnitudes.end());
  if (has_sign)
    for (std::size_t i = 0; i + 1 < magnitudes.size(); ++i) numbers.push_back(-magnitudes[i]);
  std::sort(numbers.begin(), numbers.end());
  std::copy(numbers.begin(), numbers.end(), map.numbers.begin());
  return map;
}

// By integers, whose order is that of magnitudes: a maximum that the compiler makes vector code of.
STRATA_VECTOR_CLONES float largest_magnitude(const float* values, std::int64_t count) {
  std::int32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<std::int32_t>(values[i]) & 0x7FFFFFFF);
  return std::bit_cast<float>(largest);
}

STRATA_VECTOR_CLONES void decode_by(const float* __restrict__ numbers, const std::uint8_t* __restrict__ codes,
                                    float scale, float* __restrict__ values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) values[i] = numbers[codes[i]] * scale;
}

STRATA_VECTOR_CLONES void encode_by(const DynamicMap& map, float inverse, const float* __restrict__ values,
                                    std::uint8_t* __restrict__ codes, std::int64_t count) {
  std::array<float, 8> from = map.from, factors = map.factor, counts = map.count;
  const int below = map.below, middle = map.has_sign ? 127 : 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const float magnitude = std::abs(values[i]) * inverse;
    float factor = 0.0F, numbers = static_cast<float>(below);
    for (std::size_t decade = 0; decade < 8; ++decade) {
      const bool reached = magnitude >= from[decade];
      factor = reached ? factors[decade] : factor;
      numbers = reached ? counts[decade] : numbers;
    }
    const float place = magnitude * factor + numbers * (8.0F / 9.0F), last = 2.0F * numbers - 1.0F;
    const float within = place < last ? place : last;
    const int rank = static_cast<int>(within > numbers ? within : numbers) - below;
    const int below_zero = middle > rank ? middle - rank : 0;  // -1 is not in the map
    codes[i] = static_cast<std::uint8_t>(values[i] < 0.0F ? below_zero : middle + rank);
  }
}

}  // namespace

const DynamicMap& signed_map() {
  static const DynamicMap map = make_map(true);
  return map;
}

const DynamicMap& unsigned_map() {
  static const DynamicMap map = make_map(false);
  return map;
}

void decode(const DynamicMap& map, const std::uint8_t* codes, float scale, float* values, std::int64_t count) {
  decode_by(map.numbers.data(), codes, scale, values, count);
}

float encode(const DynamicMap& map, const float* values, std::uint8_t* codes, std::int64_t count) {
  const float scale = largest_magnitude(values, count);
  if (scale < std::numeric_limits<float>::min()) {
    std::fill_n(codes, count, static_cast<std::uint8_t>(map.has_sign ? 127 : 0));
    return 0.0F;
  }
  encode_by(map, 1.0F / scale, values, codes, count);
  return scale;
}

}  // namespace strata::adamw_8bit
