// Between fp32 and 16 bits: blocks of numbers as number by number, and past the caches as in the usual way, at every
// place in a cache line.
#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "catch.hpp"
#include "half_precision.hpp"

TEST_CASE("rounding past the caches equals the usual one and writes only its range") {
  at::manual_seed(5);
  for (const std::int64_t begin : {0, 1, 7, 31, 32, 33}) {
    for (const std::int64_t count : {0, 1, 30, 31, 32, 33, 95, 512}) {
      CAPTURE(begin, count);
      const at::Tensor values = at::randn({count});
      if (count > 2) {
        values[0] = std::numeric_limits<float>::quiet_NaN();
        values[1] = std::numeric_limits<float>::infinity();
        values[2] = std::numeric_limits<float>::max();  // rounds to infinity
      }
      const at::Tensor found = at::full({begin + count + 40}, 7.0, at::kBFloat16), expected = found.clone();
      strata::narrow(values.const_data_ptr<float>(), expected.data_ptr<at::BFloat16>() + begin, count);
      strata::narrow_past_caches(values.const_data_ptr<float>(), found.data_ptr<at::BFloat16>() + begin, count);
      strata::fence_stores();
      CHECK(at::equal(found.view(at::kShort), expected.view(at::kShort)));
    }
  }
}

TEST_CASE("blocks of fp16 are widened and rounded as each number is") {
  constexpr std::int64_t every = 65536, shorter = every - 5;  // a block of any length
  std::vector<at::Half> numbers(every);
  for (std::int64_t i = 0; i < every; ++i) numbers[i].x = static_cast<std::uint16_t>(i);
  const auto bits = [](const std::vector<float>& of) {
    std::vector<std::uint32_t> found(of.size());
    std::transform(of.begin(), of.end(), found.begin(),
                   [](float number) { return std::bit_cast<std::uint32_t>(number); });
    return found;
  };

  std::vector<float> wide(every), expected(every);
  std::transform(numbers.begin(), numbers.end(), expected.begin(), [](at::Half x) { return strata::widened(x); });
  strata::widen(numbers.data(), wide.data(), every);
  CHECK(bits(wide) == bits(expected));
  std::fill(wide.begin(), wide.end(), 7.0F);
  std::fill(expected.begin() + shorter, expected.end(), 7.0F);
  strata::widen(numbers.data(), wide.data(), shorter);
  CHECK(bits(wide) == bits(expected));

  // Each number of fp16, what lies half way to the next, and the fp32 numbers beside both.
  std::vector<float> given;
  for (const at::Half number : numbers) {
    const std::uint32_t exact = std::bit_cast<std::uint32_t>(strata::widened(number));
    for (const std::uint32_t around : {exact, exact + 0x1000U})
      for (const std::uint32_t near : {around - 1U, around, around + 1U}) given.push_back(std::bit_cast<float>(near));
  }
  // Numbers of fp32 that are too small or too large, and NaN of all kinds.
  for (const std::uint32_t other : {0x1U, 0x7FFFFFU, 0x33000000U, 0x33000001U, 0x477FF000U, 0x7F7FFFFFU, 0x7F800001U,
                                    0x7FBFFFFFU, 0x7FC00000U, 0x7FFFFFFFU})
    for (const std::uint32_t sign : {0U, 0x80000000U}) given.push_back(std::bit_cast<float>(other | sign));
  std::vector<at::Half> rounded(given.size());
  strata::narrow(given.data(), rounded.data(), static_cast<std::int64_t>(given.size()));
  std::int64_t different = 0;
  for (std::size_t i = 0; i < given.size(); ++i) {
    at::Half one;
    strata::round_to(one, given[i]);
    different += rounded[i].x != one.x ? 1 : 0;
  }
  CHECK(different == 0);
}
