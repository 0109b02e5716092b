// Initial values: a function of seed, name and element index alone, with the right distribution.
#include "state/initial_values.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <strata/error.hpp>

#include <array>
#include <cmath>

#include "catch.hpp"

namespace {

using strata::Initializer;
using strata::state::fill_initial_values;

strata::ParameterInfo parameter(const std::string& name, std::int64_t elements, Initializer initializer) {
  strata::ParameterInfo info;
  info.name = name;
  info.shape = {elements};
  info.initializer = initializer;
  return info;
}

at::Tensor values(const strata::ParameterInfo& info, std::uint64_t seed = 1, at::ScalarType dtype = at::kFloat) {
  const at::Tensor result = at::full({info.elements()}, 7.0, dtype);
  fill_initial_values(result, info, 0, seed);
  return result;
}

}  // namespace

TEST_CASE("any cut gives the same bits") {
  for (const Initializer initializer : {Initializer::normal(0.0, 0.02), Initializer::uniform(-1.0, 2.0)}) {
    const strata::ParameterInfo info = parameter("block.weight", 10007, initializer);
    const at::Tensor whole = values(info);
    for (const std::int64_t piece : {1, 3, 63, 64, 65, 1000, 5003, 10007}) {
      const at::Tensor cut = at::zeros({info.elements()});
      for (std::int64_t begin = 0; begin < info.elements(); begin += piece)
        fill_initial_values(cut.narrow(0, begin, std::min(piece, info.elements() - begin)), info, begin, 1);
      CAPTURE(piece);
      CHECK(at::equal(cut, whole));
    }
    const int threads = at::get_num_threads();
    const strata::ParameterInfo large = parameter("large", 100001, initializer);
    const at::Tensor one = values(large);
    at::set_num_threads(3);
    CHECK(at::equal(values(large), one));
    at::set_num_threads(threads);
  }
}

TEST_CASE("values are those of the published generator") {
  using Words = std::array<std::uint32_t, 4>;
  const auto philox = [](Words c, std::uint32_t key0, std::uint32_t key1) {
    for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9U, key1 += 0xBB67AE85U) {
      const std::uint64_t a = 0xD2511F53ULL * c[0], b = 0xCD9E8D57ULL * c[2];
      c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ key0, static_cast<std::uint32_t>(b),
           static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ key1, static_cast<std::uint32_t>(a)};
    }
    return c;
  };
  // The published answers for zeros and for ones in every bit.
  REQUIRE(philox({0, 0, 0, 0}, 0, 0) == Words{0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U});
  REQUIRE(philox({~0U, ~0U, ~0U, ~0U}, ~0U, ~0U) == Words{0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU});
  const strata::ParameterInfo info =
      parameter("", 4000, Initializer::uniform(0.0, 1.0));  // the hash of "" is FNV-1a's basis
  const at::Tensor filled = values(info, 0x0123456789ABCDEFU);
  for (const std::uint32_t counter : {0U, 1U, 63U, 64U, 999U}) {
    const Words words = philox({counter, 0, 0x84222325U, 0xcbf29ce4U}, 0x89ABCDEFU, 0x01234567U);
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(filled[static_cast<std::int64_t>(4 * counter + i)].item<float>() ==
            static_cast<float>(words[i] >> 8) / 16777216.0F);
    }
  }
}

TEST_CASE("normal values equal Box-Muller in double precision") {
  const std::int64_t elements = 40000;
  const at::Tensor uniform =
      values(parameter("w", elements, Initializer::uniform(0.0, 1.0))).to(at::kDouble);  // 24 of the 32 bits
  const at::Tensor normal = values(parameter("w", elements, Initializer::normal(0.0, 1.0))).to(at::kDouble);
  const at::Tensor pairs = uniform.view({-1, 2});
  const at::Tensor radius = (pairs.select(1, 0) + 0x1p-25).log().mul(-2.0).clamp_min(0.0).sqrt();
  const at::Tensor angle = pairs.select(1, 1) * (2.0 * M_PI);
  const at::Tensor expected = at::stack({radius * angle.cos(), radius * angle.sin()}, 1).view(-1);
  const at::Tensor common =
      (pairs.select(1, 0) < 0.999).unsqueeze(1).expand({-1, 2}).reshape(-1);  // the 8 bits matter little there
  CHECK((expected - normal).abs().masked_select(common).max().item<double>() < 2e-4);
}

TEST_CASE("the distributions are right") {
  const at::Tensor normal =
      values(parameter("embedding", 1 << 20, Initializer::normal(0.5, 2.0))).to(at::kDouble).sub(0.5).div(2.0);
  const double n = static_cast<double>(normal.numel());
  CHECK(std::abs(normal.mean().item<double>()) < 4 / std::sqrt(n));
  CHECK(normal.pow(2).mean().item<double>() == Approx(1.0).margin(4 * std::sqrt(2 / n)));
  CHECK(std::abs(normal.pow(3).mean().item<double>()) < 4 * std::sqrt(15 / n));
  CHECK(normal.pow(4).mean().item<double>() == Approx(3.0).margin(4 * std::sqrt(96 / n)));
  CHECK(normal.abs().max().item<double>() > 4.3);
  CHECK(normal.abs().max().item<double>() < 6.7);
  for (const std::int64_t lag : {1, 2, 3, 4, 64}) {  // neighbours, and those of one counter, are independent
    CHECK(std::abs((normal.narrow(0, 0, normal.numel() - lag) * normal.narrow(0, lag, normal.numel() - lag))
                       .mean()
                       .item<double>()) < 4 / std::sqrt(n));
  }
  const at::Tensor uniform = values(parameter("embedding", 1 << 20, Initializer::uniform(-1.0, 3.0))).to(at::kDouble);
  CHECK(uniform.min().item<double>() >= -1.0);
  CHECK(uniform.max().item<double>() <= 3.0);
  CHECK(uniform.mean().item<double>() == Approx(1.0).margin(0.01));
  CHECK(uniform.var().item<double>() == Approx(16.0 / 12.0).epsilon(0.01));
}

TEST_CASE("name, seed and dtype") {
  const strata::ParameterInfo a = parameter("a", 1000, Initializer::normal(0.0, 1.0)),
                              b = parameter("b", 1000, Initializer::normal(0.0, 1.0));
  CHECK(at::equal(values(a, 5), values(a, 5)));
  CHECK_FALSE(at::equal(values(a, 5), values(a, 6)));
  CHECK_FALSE(at::equal(values(a, 5), values(a, 5 + (1ULL << 32))));
  CHECK((values(a, 5) == values(b, 5)).sum().item<std::int64_t>() == 0);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf, at::kDouble})
    CHECK(at::equal(values(a, 5, dtype), values(a, 5).to(dtype)));
  // A normal parameter scales with its deviation.
  CHECK(at::allclose(values(parameter("a", 1000, Initializer::normal(0.0, 0.02)), 5), values(a, 5) * 0.02));
  // These bits are part of what a seed means: a change here changes every run that starts from a seed.
  const at::Tensor frozen = values(a, 5);
  CHECK(frozen[0].item<float>() == Approx(-0.619005442).epsilon(1e-7));
  CHECK(frozen[999].item<float>() == Approx(0.0106383711).epsilon(1e-7));
}

TEST_CASE("constants, and ranges that do not fit") {
  CHECK(values(parameter("z", 9, Initializer::zeros())).abs().sum().item<float>() == 0.0F);
  CHECK(at::equal(values(parameter("o", 9, Initializer::ones())), at::ones({9})));
  CHECK(at::equal(values(parameter("c", 9, Initializer::constant(-2.5))), at::full({9}, -2.5)));
  const strata::ParameterInfo info = parameter("n", 9, Initializer::normal(0.0, 1.0));
  CHECK_NOTHROW(fill_initial_values(at::empty({0}), info, 9, 1));
  CHECK_NOTHROW(fill_initial_values(at::empty({9}, at::kMeta), info, 0, 1));
  CHECK_THROWS_AS(fill_initial_values(at::empty({2}), info, 8, 1), strata::Bug);
  CHECK_THROWS_AS(fill_initial_values(at::empty({2}), info, -1, 1), strata::Bug);
  CHECK_THROWS_AS(fill_initial_values(at::empty({2, 2}), info, 0, 1), strata::Bug);
}
