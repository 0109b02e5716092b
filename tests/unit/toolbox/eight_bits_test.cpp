// Rounding to 8 bits against the formats' definition, in float64, for every number of bf16.
#include <ATen/ATen.h>
#include <strata/toolbox/eight_bits.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "catch.hpp"

using namespace strata;

namespace {

struct Format {
  const EightBits& format;
  const char* name;
};
const Format both[] = {{e4m3, "E4M3"}, {e5m2, "E5M2"}};

// What the 128 codes without a sign stand for, ascending: NaN and infinity are not among them.
std::vector<double> numbers_of(const EightBits& format) {
  const int fractions = 1 << format.mantissa;
  std::vector<double> numbers;
  for (int code = 0; code < 128; ++code) {
    const int exponent = code / fractions, fraction = code % fractions;
    const double number = exponent == 0
                              ? std::ldexp(fraction, format.smallest - format.mantissa)
                              : std::ldexp(fractions + fraction, exponent - 1 + format.smallest - format.mantissa);
    if (number <= static_cast<double>(format.largest())) numbers.push_back(number);
  }
  return numbers;
}

// The nearest number, of two the one with an even code; beyond the largest that one.
double nearest(const std::vector<double>& numbers, double value) {
  const auto above = std::lower_bound(numbers.begin(), numbers.end(), std::abs(value));
  if (above == numbers.end()) return std::copysign(numbers.back(), value);
  if (above == numbers.begin()) return std::copysign(0.0, value);
  const auto below = above - 1;
  const double up = *above - std::abs(value), down = std::abs(value) - *below;
  const bool goes_up = up < down || (up == down && (above - numbers.begin()) % 2 == 0);
  return std::copysign(goes_up ? *above : *below, value);
}

at::Tensor all_of_bf16() {
  return at::arange(-32768, 32768, at::kInt).to(at::kShort).view(at::kBFloat16);
}

bool same(double one, double other) {
  return std::isnan(one) ? std::isnan(other) : one == other && std::signbit(one) == std::signbit(other);
}

// How many elements differ, in value or in the sign of 0.
std::int64_t differing(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor mine = found.to(at::kDouble).contiguous(), other = expected.to(at::kDouble).contiguous();
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < mine.numel(); ++i)
    count += same(mine.data_ptr<double>()[i], other.data_ptr<double>()[i]) ? 0 : 1;
  return count;
}

at::Tensor reference(const at::Tensor& x, double scale, const EightBits& format) {
  const std::vector<double> numbers = numbers_of(format);
  const at::Tensor result = x.to(at::kDouble).contiguous().clone();
  for (std::int64_t i = 0; i < result.numel(); ++i) {
    double& value = result.data_ptr<double>()[i];
    if (!std::isnan(value)) value = std::isnan(scale) ? scale : nearest(numbers, value * scale) / scale;
    if (std::isnan(scale)) value = scale;
  }
  return result;
}

at::Tensor fp32(double value) {
  return at::scalar_tensor(value, at::kFloat);
}

constexpr double no_number = std::numeric_limits<double>::quiet_NaN(),
                 infinite = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("the formats have the numbers of their definitions, and each is rounded to itself") {
  CHECK(scaled_together == 32);
  CHECK(numbers_of(e4m3).size() == 127);  // the 128th is NaN
  CHECK(numbers_of(e4m3).back() == 448.0);
  CHECK(numbers_of(e4m3)[1] == std::ldexp(1.0, -9));
  CHECK(numbers_of(e5m2).size() == 124);  // then infinity and three NaNs
  CHECK(numbers_of(e5m2).back() == 57344.0);
  CHECK(numbers_of(e5m2)[1] == std::ldexp(1.0, -16));
  for (const auto& [format, name] : both) {
    INFO(name);
    // libtorch's reading of all 256 codes is the same table.
    const at::Tensor codes = at::arange(256, at::kInt).to(at::kByte).view(format.dtype).to(at::kDouble);
    const std::vector<double> numbers = numbers_of(format);
    for (std::int64_t code = 0; code < 256; ++code) {
      const auto magnitude = static_cast<std::size_t>(code % 128);
      const double found = codes[code].item<double>();
      if (magnitude < numbers.size())
        CHECK(same(found, std::copysign(numbers[magnitude], code < 128 ? 1.0 : -1.0)));
      else
        CHECK_FALSE(std::isfinite(found));
    }
    const at::Tensor finite = codes.masked_select(codes.isfinite());
    CHECK(differing(rounded(finite.to(at::kBFloat16), fp32(1.0), format), finite) == 0);
  }
}

TEST_CASE("every bf16 value rounds to nearest even and saturates") {
  const at::Tensor x = all_of_bf16();
  for (const auto& [format, name] : both)
    for (const double scale : {1.0, std::ldexp(1.0, 20), std::ldexp(1.0, -17), std::ldexp(1.0, 100), no_number}) {
      INFO(name << " scale " << scale);
      const at::Tensor expected = reference(x, scale, format);
      CHECK(differing(rounded(x, fp32(scale), format), expected) == 0);
      CHECK(differing(by_operators::rounded(x, fp32(scale), format), expected) == 0);
    }
}

TEST_CASE("rounding equals encoding to the format's byte and decoding") {
  for (const auto& [format, name] : both)
    for (const double scale : {1.0, std::ldexp(1.0, 20), std::ldexp(1.0, -17), std::ldexp(1.0, 100), no_number}) {
      INFO(name << " scale " << scale);
      const at::Tensor every = all_of_bf16();
      const at::Tensor x = std::isnan(scale) ? every : every.masked_select(every.isfinite());
      const auto bytes_by = [&](const auto& code) {
        const at::Tensor bytes = at::empty(x.sizes(), at::kByte);
        code(x, fp32(scale), format, bytes);
        return bytes;
      };
      const auto numbers_by = [&](const auto& decode, const at::Tensor& bytes) {
        const at::Tensor values = at::empty_like(x);
        decode(bytes, fp32(scale), format, values);
        return values;
      };
      const at::Tensor bytes = bytes_by(to_bytes), expected = rounded(x, fp32(scale), format);
      if (!std::isnan(scale)) CHECK(at::equal(bytes, bytes_by(by_operators::to_bytes)));
      CHECK(differing(numbers_by(from_bytes, bytes), expected) == 0);
      CHECK(differing(numbers_by(by_operators::from_bytes, bytes), expected) == 0);
    }
}

TEST_CASE("rounding with a tensor's own scale is idempotent") {
  for (const auto& [format, name] : both)
    for (const double largest : {1.0, 1.74, 1.75, 1.76, 1.8, 1.82, 1.9, 1.94, 1.99}) {
      INFO(name << " " << largest);
      const at::Tensor exponents = at::randint(-40, 0, {4096}).to(at::kFloat);
      const at::Tensor x = at::rand({4096}).mul(at::exp2(exponents)).to(at::kBFloat16);
      x[7] = -largest;
      const at::Tensor once = rounded(x, power_of_two(largest_magnitude(x), format), format);
      CHECK(differing(rounded(once, power_of_two(largest_magnitude(once), format), format), once) == 0);
    }
}

TEST_CASE("a scale is the largest power of two that keeps a magnitude within the format") {
  std::vector<float> magnitudes{
      0.0F, 1e-45F, 1.0F, 448.0F, 449.0F, 57344.0F, 3e38F, 1.75F, std::nextafter(1.75F, 2.0F)};
  for (int i = -100; i < 100; ++i) magnitudes.push_back(std::ldexp(1.0F + 0.01F * static_cast<float>(i & 63), i));
  for (const auto& [format, name] : both) {
    const at::Tensor all = at::tensor(magnitudes);
    const at::Tensor scales = power_of_two(all, format);
    CHECK(at::equal(scales, by_operators::power_of_two(all, format)));
    for (std::size_t i = 0; i < magnitudes.size(); ++i) {
      INFO(name << " " << magnitudes[i]);
      const double scale = scales[static_cast<std::int64_t>(i)].item<float>(), scaled = scale * magnitudes[i];
      int exponent = 0;
      CHECK(std::frexp(scale, &exponent) == 0.5);
      CHECK(scaled <= format.largest());
      CHECK((2.0 * scaled > format.largest() || scale == std::ldexp(1.0, 100)));
    }
    for (const double none : {no_number, infinite})
      for (const at::Tensor& scale : {power_of_two(fp32(none), format), by_operators::power_of_two(fp32(none), format)})
        CHECK(std::isnan(scale.item<float>()));
  }
}

TEST_CASE("the largest magnitude is over all elements, and not finite if one is not") {
  const at::Tensor x = at::randn({3, 50001}).to(at::kBFloat16);  // more than a thread takes
  x[1][40000] = -77.0;
  CHECK(largest_magnitude(x).item<float>() == 77.0F);
  CHECK(by_operators::largest_magnitude(x).item<float>() == 77.0F);
  CHECK(largest_magnitude(x.t()).item<float>() == 77.0F);
  for (const double none : {no_number, -infinite}) {
    x[0][1] = none;
    CHECK_FALSE(std::isfinite(largest_magnitude(x).item<float>()));
    CHECK_FALSE(std::isfinite(by_operators::largest_magnitude(x).item<float>()));
  }
}

TEST_CASE("each block of 32 has a scale of its own, the last one too if it is shorter") {
  for (const auto& [format, name] : both) {
    INFO(name);
    const at::Tensor exponents = at::randint(-30, 30, {5, 70}).to(at::kFloat);
    const at::Tensor x = at::randn({5, 70}).mul(at::exp2(exponents)).to(at::kBFloat16);
    x[0][40] = infinite;
    x.narrow(0, 1, 1).narrow(1, 0, 32).zero_();
    at::Tensor expected = at::empty({5, 70}, at::kDouble);
    for (std::int64_t row = 0; row < 5; ++row)
      for (std::int64_t begin = 0; begin < 70; begin += scaled_together) {
        const at::Tensor block = x[row].narrow(0, begin, std::min(scaled_together, 70 - begin));
        const double scale = power_of_two(largest_magnitude(block), format).item<float>();
        expected[row].narrow(0, begin, block.numel()).copy_(reference(block, scale, format));
      }
    CHECK(std::isnan(expected[0][33].item<double>()));
    CHECK(differing(rounded_by_blocks(x, format), expected) == 0);
    CHECK(differing(by_operators::rounded_by_blocks(x, format), expected) == 0);
    CHECK(differing(rounded_by_blocks(x.t(), format), rounded_by_blocks(x.t().contiguous(), format)) == 0);
  }
}

TEST_CASE("a part with its own scale rounds as the whole, but for its smallest numbers") {
  for (const auto& [format, name] : both) {
    INFO(name);
    const at::Tensor exponents = at::randint(-40, 0, {4096}).to(at::kFloat);
    const at::Tensor part = at::randn({4096}).mul(at::exp2(exponents)).to(at::kBFloat16);
    const double largest = 3.7 * largest_magnitude(part).item<float>();
    const at::Tensor alone = rounded(part, power_of_two(largest_magnitude(part), format), format);
    const at::Tensor in_whole = rounded(part, power_of_two(fp32(largest), format), format);
    const double apart = (alone.to(at::kDouble) - in_whole.to(at::kDouble)).abs().max().item<double>();
    CHECK(apart > 0.0);
    CHECK(apart < std::ldexp(largest, format.dtype == e4m3.dtype ? -17 : -31));
  }
}
