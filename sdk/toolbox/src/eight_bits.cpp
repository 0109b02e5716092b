#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <strata/error.hpp>
#include <strata/toolbox/eight_bits.hpp>
#include <strata/vector_clones.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>

namespace strata {
namespace {

constexpr std::uint32_t infinity = 0x7F800000U, no_number = 0x7FC00000U;
constexpr std::int64_t smallest_part = 1 << 14;  // elements worth a thread

// Of the bits of a magnitude: see by_operators::power_of_two.
float power_for(std::uint32_t magnitude, const EightBits& format) {
  if (magnitude >= infinity) return std::bit_cast<float>(no_number);
  const auto exponent = static_cast<int>((magnitude + 0x1FFFFFU) >> 23);
  return std::bit_cast<float>(static_cast<std::uint32_t>(std::clamp(254 + format.exponent - exponent, 1, 227)) << 23);
}

STRATA_VECTOR_CLONES std::uint32_t largest_bits(const at::BFloat16* values, std::int64_t count) {
  std::uint16_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto magnitude = static_cast<std::uint16_t>(values[i].x & 0x7FFFU);
    largest = magnitude > largest ? magnitude : largest;
  }
  return static_cast<std::uint32_t>(largest) << 16;
}

// How a format rounds: above its smallest normal number the bits below the mantissa are dropped, half to even; below it
// numbers are multiples of the smallest, to which fp32 rounds where its own last bit is that.
struct Rounding {
  explicit Rounding(const EightBits& format)
      : dropped(23U - static_cast<unsigned>(format.mantissa)),
        largest(format.largest()),
        normal(std::bit_cast<float>(static_cast<std::uint32_t>(127 + format.smallest) << 23)),
        multiples(
            std::bit_cast<float>(static_cast<std::uint32_t>(127 + format.smallest - format.mantissa + 23) << 23)) {}
  unsigned dropped;
  float largest, normal, multiples;
};

STRATA_VECTOR_CLONES void round_some(const at::BFloat16* from, at::BFloat16* to, std::int64_t count, float scale,
                                     float back, const Rounding& rounding) {
  const std::uint32_t below = (1U << rounding.dropped) - 1U, half = below >> 1U;
  const unsigned dropped = rounding.dropped;
  const float largest = rounding.largest, normal = rounding.normal, multiples = rounding.multiples;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(from[i].x) << 16;
    const float scaled = std::bit_cast<float>(bits & 0x7FFFFFFFU) * scale;
    const float magnitude = scaled > largest ? largest : scaled;
    const auto word = std::bit_cast<std::uint32_t>(magnitude);
    const float of_normal = std::bit_cast<float>((word + half + ((word >> dropped) & 1U)) & ~below);
    const float of_small = (magnitude + multiples) - multiples;
    const float kept = magnitude < normal ? of_small : of_normal;
    const float result = (magnitude == magnitude ? kept : magnitude) * back;
    to[i].x = static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(result) | (bits & 0x80000000U)) >> 16);
  }
}

// Without a scale there is no number.
void round_or_void(const at::BFloat16* from, at::BFloat16* to, std::int64_t count, float scale,
                   const Rounding& rounding) {
  if (scale == scale)
    round_some(from, to, count, scale, 1.0F / scale, rounding);
  else
    std::fill_n(to, count, at::BFloat16(no_number >> 16, at::BFloat16::from_bits()));
}

// The code of a format's number is the bits of its exponent, from the smallest normal's on, and mantissa, which is to
// say that of a multiple of the smallest below the smallest normal.
STRATA_VECTOR_CLONES void code_some(const at::BFloat16* from, std::uint8_t* to, std::int64_t count, float scale,
                                    const Rounding& rounding) {
  const unsigned dropped = rounding.dropped;
  const std::uint32_t below = (1U << dropped) - 1U, half = below >> 1U;
  const float largest = rounding.largest, normal = rounding.normal, multiples = rounding.multiples;
  const auto zero = std::bit_cast<std::uint32_t>(multiples);
  const std::uint32_t first = (std::bit_cast<std::uint32_t>(normal) >> dropped) - (1U << (23U - dropped));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(from[i].x) << 16;
    const float scaled = std::bit_cast<float>(bits & 0x7FFFFFFFU) * scale;
    const float magnitude = scaled > largest ? largest : scaled;
    const auto word = std::bit_cast<std::uint32_t>(magnitude);
    const std::uint32_t of_normal = ((word + half + ((word >> dropped) & 1U)) >> dropped) - first;
    const std::uint32_t of_small = std::bit_cast<std::uint32_t>(magnitude + multiples) - zero;
    const std::uint32_t code = magnitude < normal ? of_small : of_normal;
    to[i] = static_cast<std::uint8_t>(code | (bits >> 24 & 0x80U));
  }
}

// The value of each code, times `back`.
std::array<std::uint16_t, 256> numbers(const EightBits& format, float back) {
  std::array<std::uint16_t, 256> table{};
  const unsigned fractions = 1U << static_cast<unsigned>(format.mantissa);
  for (unsigned code = 0; code < 128; ++code) {
    const int exponent = std::max(1, static_cast<int>(code / fractions));
    const unsigned fraction = code % fractions + (code < fractions ? 0 : fractions);
    const float number =
        std::ldexp(static_cast<float>(fraction), exponent - 1 + format.smallest - format.mantissa) * back;
    table[code] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(number) >> 16);
    table[code + 128] = table[code] | 0x8000U;
  }
  return table;
}

at::Tensor checked(const at::Tensor& x) {
  strata_check(x.scalar_type() == at::kBFloat16, "what is rounded to 8 bits is of bf16");
  return x.contiguous();
}

}  // namespace

at::Tensor largest_magnitude(const at::Tensor& x) {
  if (x.is_meta()) return at::empty({}, x.options().dtype(at::kFloat));
  if (!x.is_cpu() || x.scalar_type() != at::kBFloat16) return by_operators::largest_magnitude(x);
  const at::Tensor from = x.contiguous();
  const at::BFloat16* const values = from.const_data_ptr<at::BFloat16>();
  std::atomic<std::uint32_t> largest = 0;
  at::parallel_for(0, from.numel(), smallest_part, [&](std::int64_t begin, std::int64_t end) {
    const std::uint32_t mine = largest_bits(values + begin, end - begin);
    for (std::uint32_t so_far = largest; so_far < mine && !largest.compare_exchange_weak(so_far, mine);) {
    }
  });
  return at::scalar_tensor(std::bit_cast<float>(largest.load()), at::TensorOptions().dtype(at::kFloat));
}

at::Tensor power_of_two(const at::Tensor& magnitudes, const EightBits& format) {
  if (magnitudes.is_meta()) return at::empty_like(magnitudes);
  if (!magnitudes.is_cpu()) return by_operators::power_of_two(magnitudes, format);
  const at::Tensor from = magnitudes.contiguous(), powers = at::empty_like(from);
  for (std::int64_t i = 0; i < from.numel(); ++i)
    powers.mutable_data_ptr<float>()[i] =
        power_for(std::bit_cast<std::uint32_t>(from.const_data_ptr<float>()[i]), format);
  return powers;
}

at::Tensor rounded(const at::Tensor& x, const at::Tensor& scale, const EightBits& format) {
  if (!x.is_cpu() && !x.is_meta()) return by_operators::rounded(x, scale, format);
  const at::Tensor from = checked(x), result = at::empty_like(from);
  if (x.is_meta()) return result;
  const at::BFloat16* const values = from.const_data_ptr<at::BFloat16>();
  at::BFloat16* const to = result.mutable_data_ptr<at::BFloat16>();
  const Rounding rounding(format);
  const float factor = *scale.const_data_ptr<float>();
  at::parallel_for(0, from.numel(), smallest_part, [&](std::int64_t begin, std::int64_t end) {
    round_or_void(values + begin, to + begin, end - begin, factor, rounding);
  });
  return result;
}

void to_bytes(const at::Tensor& x, const at::Tensor& scale, const EightBits& format, const at::Tensor& bytes) {
  if (x.is_meta()) return;
  if (!x.is_cpu()) return by_operators::to_bytes(x, scale, format, bytes);
  const at::Tensor from = checked(x);
  const at::BFloat16* const values = from.const_data_ptr<at::BFloat16>();
  std::uint8_t* const to = bytes.mutable_data_ptr<std::uint8_t>();
  const Rounding rounding(format);
  const float factor = *scale.const_data_ptr<float>();
  at::parallel_for(0, from.numel(), smallest_part, [&](std::int64_t begin, std::int64_t end) {
    code_some(values + begin, to + begin, end - begin, factor, rounding);
  });
}

void from_bytes(const at::Tensor& bytes, const at::Tensor& scale, const EightBits& format, const at::Tensor& into) {
  if (into.is_meta()) return;
  if (!into.is_cpu()) return by_operators::from_bytes(bytes, scale, format, into);
  const float factor = *scale.const_data_ptr<float>();
  std::array<std::uint16_t, 256> table{};
  if (factor == factor)
    table = numbers(format, 1.0F / factor);
  else
    table.fill(no_number >> 16);
  const std::uint8_t* const from = bytes.const_data_ptr<std::uint8_t>();
  at::BFloat16* const to = into.mutable_data_ptr<at::BFloat16>();
  at::parallel_for(0, into.numel(), smallest_part, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) to[i].x = table[from[i]];
  });
}

at::Tensor rounded_by_blocks(const at::Tensor& x, const EightBits& format) {
  if (!x.is_cpu() && !x.is_meta()) return by_operators::rounded_by_blocks(x, format);
  const at::Tensor from = checked(x), result = at::empty_like(from);
  if (x.is_meta()) return result;
  const at::BFloat16* const values = from.const_data_ptr<at::BFloat16>();
  at::BFloat16* const to = result.mutable_data_ptr<at::BFloat16>();
  const Rounding rounding(format);
  const std::int64_t columns = from.size(1);
  const std::int64_t rows_of_a_thread = std::max<std::int64_t>(1, smallest_part / std::max<std::int64_t>(1, columns));
  at::parallel_for(0, from.size(0), rows_of_a_thread, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t column = 0; column < columns; column += scaled_together) {
        const std::int64_t at = row * columns + column, some = std::min(scaled_together, columns - column);
        round_or_void(values + at, to + at, some, power_for(largest_bits(values + at, some), format), rounding);
      }
    }
  });
  return result;
}

}  // namespace strata
