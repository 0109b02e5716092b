// Vectors of numbers, between 16-bit formats and fp32, whose functions are compiled with the instructions of the
// function that they are inlined into.
#pragma once
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions only

#define STRATA_INLINED [[gnu::always_inline]] inline

namespace strata {

template <int Lanes>
using Floats [[gnu::vector_size(Lanes * 4)]] = float;
template <int Lanes>
using Bits [[gnu::vector_size(Lanes * 4)]] = std::uint32_t;
template <int Lanes>
using Halves [[gnu::vector_size(Lanes * 2)]] = std::uint16_t;

template <class Vector>
STRATA_INLINED Vector load(const void* from) {
  Vector vector;
  std::memcpy(&vector, from, sizeof vector);
  return vector;
}

template <class Vector>
STRATA_INLINED void store(void* to, Vector vector) {
  std::memcpy(to, &vector, sizeof vector);
}

// As widened() and round_to() of half_precision.hpp. Of `bits`, the lower 16 are the number.
template <class Number, int Lanes>
STRATA_INLINED Floats<Lanes> widened_bits(Bits<Lanes> bits) {
  if constexpr (std::is_same_v<Number, at::BFloat16>) return std::bit_cast<Floats<Lanes>>(bits << 16);
  const Bits<Lanes> sign = (bits << 16) & 0x80000000U, rest = bits << 17;
  const auto normal = std::bit_cast<Floats<Lanes>>((rest >> 4) + (0xE0U << 23)) * 0x1.0p-112F;
  const auto subnormal = std::bit_cast<Floats<Lanes>>((rest >> 17) | (126U << 23)) - 0.5F;
  const Bits<Lanes> magnitude =
      rest < (1U << 27) ? std::bit_cast<Bits<Lanes>>(subnormal) : std::bit_cast<Bits<Lanes>>(normal);
  return std::bit_cast<Floats<Lanes>>(sign | magnitude);
}

template <class Number, int Lanes>
STRATA_INLINED Halves<Lanes> rounded(Floats<Lanes> numbers) {
  const auto bits = std::bit_cast<Bits<Lanes>>(numbers);
  Bits<Lanes> nearest;
  if constexpr (std::is_same_v<Number, at::BFloat16>) {
    nearest = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
    nearest = numbers == numbers ? nearest : Bits<Lanes>{} + 0x7FC0U;
  } else {
    const Bits<Lanes> twice = bits + bits, exponent = twice & 0xFF000000U;
    const Bits<Lanes> bias = exponent < 0x71000000U ? Bits<Lanes>{} + 0x71000000U : exponent;
    const auto scaled = std::bit_cast<Floats<Lanes>>(bits & 0x7FFFFFFFU) * 0x1.0p+112F * 0x1.0p-110F;
    const auto sum = std::bit_cast<Bits<Lanes>>(std::bit_cast<Floats<Lanes>>((bias >> 1) + 0x07800000U) + scaled);
    const Bits<Lanes> magnitude = ((sum >> 13) & 0x7C00U) + (sum & 0x0FFFU);
    nearest = ((bits & 0x80000000U) >> 16) | (twice > 0xFF000000U ? Bits<Lanes>{} + 0x7E00U : magnitude);
  }
  return __builtin_convertvector(nearest, Halves<Lanes>);
}

template <int Step, class Vector, std::size_t... I>
STRATA_INLINED void exchange(Vector& one, Vector& other, std::index_sequence<I...>) {
  constexpr int lanes = sizeof...(I);
  const Vector first = one, second = other;
  one = __builtin_shufflevector(first, second, (I & Step ? lanes + int(I) - Step : int(I))...);
  other = __builtin_shufflevector(first, second, (I & Step ? lanes + int(I) : int(I) + Step)...);
}

// Of as many rows as they have lanes.
template <int Lanes, int Step = 1>
STRATA_INLINED void transpose(Bits<Lanes> (&rows)[Lanes]) {
#pragma GCC unroll 16
  for (int row = 0; row < Lanes; ++row)
    if ((row & Step) == 0) exchange<Step>(rows[row], rows[row + Step], std::make_index_sequence<Lanes>());
  if constexpr (2 * Step < Lanes) transpose<Lanes, 2 * Step>(rows);
}

}  // namespace strata
