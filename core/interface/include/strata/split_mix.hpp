// SplitMix64: Steele, Lea and Flood 2014, "Fast Splittable Pseudorandom Number Generators".
#pragma once
#include <cstdint>

namespace strata {

inline constexpr std::uint64_t golden_ratio =
    0x9E3779B97F4A7C15U;  // 2^64 / golden ratio, rounded to odd: the generator's increment

inline constexpr std::uint64_t mix_factors[]{0xBF58476D1CE4E5B9U, 0x94D049BB133111EBU};

// The generator's output function: a bijection in which every input bit affects every output bit.
constexpr std::uint64_t mix_bits(std::uint64_t z) {
  z = (z ^ (z >> 30)) * mix_factors[0];
  z = (z ^ (z >> 27)) * mix_factors[1];
  return z ^ (z >> 31);
}

// Returns the generator's first output after the seed `seed`.
constexpr std::uint64_t split_mix(std::uint64_t seed) {
  return mix_bits(seed + golden_ratio);
}

}  // namespace strata
