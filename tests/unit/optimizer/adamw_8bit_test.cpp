// adamw_8bit: its numbers against bitsandbytes' recipe, its update against the paper's in fp64, and the same bits
// wherever blocks are cut.
#include <ATen/ATen.h>
#include <strata/fakes/optimizer_update.hpp>
#include <strata/fakes/plugin_library.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "adamw_8bit/adamw_8bit_step.hpp"
#include "adamw_8bit/dynamic_map.hpp"
#include "catch.hpp"

using namespace strata;
using adamw_8bit::block_elements;
using adamw_8bit::DynamicMap;

namespace {

// bitsandbytes.functional.create_dynamic_map, for 7 exponents and 8 bits.
std::vector<double> dynamic_map(bool has_sign) {
  std::vector<double> numbers{0.0, 1.0};
  for (int i = 0; i < 7; ++i) {
    const int items = 1 << (has_sign ? i : i + 1);
    for (int k = 0; k < items; ++k) {
      const double low = 0.1 + 0.9 * k / items, high = 0.1 + 0.9 * (k + 1) / items;
      const double mean = std::pow(10.0, i - 6) * (low + high) / 2;
      numbers.push_back(mean);
      if (has_sign) numbers.push_back(-mean);
    }
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

int nearest(const std::vector<double>& numbers, double value) {
  int best = 0;
  for (int code = 1; code < 256; ++code)
    if (std::abs(numbers[static_cast<std::size_t>(code)] - value) <
        std::abs(numbers[static_cast<std::size_t>(best)] - value))
      best = code;
  return best;
}

// Of every decade of the map and below it.
std::vector<float> drawn(std::int64_t count, bool has_sign, std::mt19937_64& random) {
  std::uniform_real_distribution<double> exponent(-8.5, 0.0);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    value = static_cast<float>(std::pow(10.0, exponent(random)));
    if (has_sign && random() % 2 == 0) value = -value;
  }
  return values;
}

// The optimizer of the paper in fp64, element by element.
struct Paper {
  std::vector<double> first_numbers = dynamic_map(true), second_numbers = dynamic_map(false);
  std::vector<double> p, m, v;

  static void round(const std::vector<double>& numbers, std::vector<double>& values) {
    for (std::size_t begin = 0; begin < values.size(); begin += block_elements) {
      const std::size_t end = std::min(values.size(), begin + block_elements);
      double largest = 0.0;
      for (std::size_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(values[i]));
      for (std::size_t i = begin; i < end && largest > 0.0; ++i)
        values[i] = numbers[static_cast<std::size_t>(nearest(numbers, values[i] / largest))] * largest;
    }
  }

  void step(const std::vector<double>& gradient, int t, double rate, double beta1, double beta2, double decay) {
    for (std::size_t i = 0; i < p.size(); ++i) {
      m[i] = beta1 * m[i] + (1 - beta1) * gradient[i];
      v[i] = beta2 * v[i] + (1 - beta2) * gradient[i] * gradient[i];
      const double corrected = m[i] / (1 - std::pow(beta1, t)), root = std::sqrt(v[i] / (1 - std::pow(beta2, t)));
      p[i] -= rate * decay * p[i] + rate * corrected / (root + 1e-8);
    }
    round(first_numbers, m);
    round(second_numbers, v);
  }
};

Piece piece_of(const Optimizer& optimizer, std::int64_t elements, at::ScalarType gradient = at::kFloat,
               bool copy = false) {
  Piece piece;
  piece.info = {"weight", {elements}, 0, elements};
  piece.master = at::randn({elements});
  piece.gradient = at::randn({elements}).mul(at::randn({elements}).exp()).to(gradient);
  if (copy) piece.parameter = piece.master.to(at::kBFloat16);
  for (const StateTensor& state : optimizer.state(piece.info))
    piece.state.push_back(at::zeros({state.elements(piece.info)}, at::TensorOptions().dtype(state.dtype)));
  return piece;
}

StepScalars scalars(int t, double rate = 0.01) {
  return {rate, t, at::full({}, 0.5F), at::full({}, 1.0F)};
}

}  // namespace

TEST_CASE("the 8-bit numbers are bitsandbytes', and each value is rounded to the nearest") {
  std::mt19937_64 random(7);
  for (const DynamicMap* const map : {&adamw_8bit::signed_map(), &adamw_8bit::unsigned_map()}) {
    CAPTURE(map->has_sign);
    const std::vector<double> numbers = dynamic_map(map->has_sign);
    REQUIRE(numbers.size() == 256);
    for (std::size_t code = 0; code < 256; ++code)
      CHECK(map->numbers[code] == Approx(numbers[code]).epsilon(1e-6).margin(0));
    double worst = 0.0;
    for (int repeat = 0; repeat < 100; ++repeat) {
      const std::int64_t count = 1 + static_cast<std::int64_t>(random() % block_elements);
      const std::vector<float> values = drawn(count, map->has_sign, random);
      std::array<std::uint8_t, block_elements> codes{};
      std::array<float, block_elements> back{};
      const float scale = adamw_8bit::encode(*map, values.data(), codes.data(), count);
      adamw_8bit::decode(*map, codes.data(), scale, back.data(), count);
      for (std::size_t i = 0; i < values.size(); ++i) {
        REQUIRE(std::abs(values[i]) <= scale);
        const double quotient = static_cast<double>(values[i]) / scale;
        const double best = numbers[static_cast<std::size_t>(nearest(numbers, quotient))];
        // A value in the middle of two may go either way, by fp32's rounding.
        REQUIRE(std::abs(back[i] / scale - quotient) <= std::abs(best - quotient) + 4e-7 * std::abs(quotient));
        if (std::abs(quotient) >= 0.1 && quotient >= -0.99)
          worst = std::max(worst, std::abs(back[i] / scale - quotient));
      }
    }
    // Half of a part of the last decade, which has 64 with a sign.
    CHECK(worst <= (map->has_sign ? 0.9 / 64 / 2 : 0.9 / 128 / 2) * 1.0001);
    CHECK(worst >= (map->has_sign ? 0.9 / 64 / 2 : 0.9 / 128 / 2) * 0.95);
  }
}

TEST_CASE("a block of zeros, and one of numbers too small to be normal, is zero again") {
  for (const DynamicMap* const map : {&adamw_8bit::signed_map(), &adamw_8bit::unsigned_map()}) {
    std::array<std::uint8_t, block_elements> codes{};
    std::array<float, block_elements> values{};
    values[3] = 1e-40F;
    CHECK(adamw_8bit::encode(*map, values.data(), codes.data(), block_elements) == 0.0F);
    CHECK(map->numbers[codes[5]] == 0.0F);
    values[4] = 1e-37F;
    CHECK(adamw_8bit::encode(*map, values.data(), codes.data(), block_elements) == 1e-37F);
    CHECK(map->numbers[codes[4]] == 1.0F);
    CHECK(map->numbers[codes[5]] == 0.0F);
  }
}

TEST_CASE("twenty steps are the paper's in fp64") {
  const fakes::PluginLibrary library(ADAMW_8BIT_LIBRARY);
  const fakes::LoadedPlugin<Optimizer> plugin(library, {{"betas", "[0.9, 0.99]"}, {"weight_decay", "0.1"}});
  const std::int64_t elements = 4096 + 100;
  at::manual_seed(3);
  Piece piece = piece_of(*plugin, elements);
  const auto numbers = [](const at::Tensor& tensor) {
    const at::Tensor wide = tensor.to(at::kDouble).contiguous();
    return std::vector<double>(wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel());
  };
  Paper paper;
  paper.p = numbers(piece.master);
  paper.m.assign(paper.p.size(), 0.0);
  paper.v = paper.m;
  const std::vector<double> start = paper.p;
  for (int t = 0; t < 20; ++t) {
    piece.gradient = at::randn({elements}).mul(at::randn({elements}).exp());
    fakes::update(*plugin, piece, scalars(t));
    paper.step(numbers(piece.gradient.mul(0.5)), t + 1, 0.01, 0.9, 0.99, 0.1);
  }
  // What lies in the middle of two numbers is rounded either way, and moves by less than a hundredth of its update.
  std::vector<double> differences;
  double moved = 0.0;
  const std::vector<double> found = numbers(piece.master);
  for (std::size_t i = 0; i < found.size(); ++i) {
    differences.push_back(std::abs(found[i] - paper.p[i]));
    moved = std::max(moved, std::abs(paper.p[i] - start[i]));
  }
  std::sort(differences.begin(), differences.end());
  CAPTURE(differences[differences.size() / 2], differences[differences.size() * 99 / 100], differences.back(), moved);
  CHECK(differences[differences.size() * 99 / 100] <= 2e-6);
  CHECK(differences.back() <= 0.01 * moved);
}

TEST_CASE("blocks give the same bits wherever a parameter is cut, in any format") {
  const fakes::PluginLibrary library(ADAMW_8BIT_LIBRARY);
  const fakes::LoadedPlugin<Optimizer> first(library), second(library);
  const std::array<Optimizer*, 2> instances{&*first, &*second};
  const std::int64_t elements = 30 * block_elements + 77;
  for (const at::ScalarType gradient : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::vector<std::int64_t>& blocks : std::vector<std::vector<std::int64_t>>{{1, 2, 9}, {17}, {29, 30}}) {
      Piece whole = piece_of(*first, elements, gradient, gradient != at::kFloat), cut = whole;
      for (at::Tensor* const tensor : {&cut.master, &cut.parameter})
        if (tensor->defined()) *tensor = tensor->clone();
      for (at::Tensor& state : cut.state) state = state.clone();
      std::vector<Piece> pieces;
      std::int64_t begin = 0;
      std::vector<std::int64_t> borders = blocks;
      borders.push_back(31);
      for (const std::int64_t border : borders) {
        Piece& piece = pieces.emplace_back(cut);
        const std::int64_t end = std::min(border * block_elements, elements);
        piece.info.begin = begin;
        piece.info.end = end;
        for (at::Tensor* const tensor : {&piece.master, &piece.gradient, &piece.parameter})
          if (tensor->defined()) *tensor = tensor->narrow(0, begin, end - begin);
        for (std::size_t i = 0; i < piece.state.size(); ++i) {
          const std::int64_t block = i % 2 == 0 ? 1 : block_elements;
          piece.state[i] = piece.state[i].narrow(0, begin / block, (end - begin + block - 1) / block);
        }
        begin = end;
      }
      for (int t = 0; t < 3; ++t) {
        fakes::update(*first, whole, scalars(t));
        fakes::update(instances, pieces, scalars(t));
      }
      CHECK(at::equal(whole.master, cut.master));
      if (whole.parameter.defined()) CHECK(at::equal(whole.parameter, cut.parameter));
      for (std::size_t i = 0; i < whole.state.size(); ++i) CHECK(at::equal(whole.state[i], cut.state[i]));
    }
  }
}

TEST_CASE("libtorch's operators compute the same") {
  const fakes::PluginLibrary library(ADAMW_8BIT_LIBRARY);
  const fakes::LoadedPlugin<Optimizer> plugin(library);
  at::manual_seed(5);
  Piece fast = piece_of(*plugin, 20 * block_elements + 9), slow = fast;
  slow.master = fast.master.clone();
  for (at::Tensor& state : slow.state) state = state.clone();
  const adamw::AdamwHyperparameters hyperparameters;
  const adamw_8bit::DeviceMaps maps(at::empty({adamw_8bit::DeviceMaps::elements}));
  std::array<Piece*, 1> pieces{&fast};
  for (int t = 0; t < 3; ++t) {
    fast.gradient = slow.gradient = at::randn({fast.master.numel()}).mul(at::randn({fast.master.numel()}).exp());
    adamw_8bit::blocks_step(pieces, scalars(t), hyperparameters);
    adamw_8bit::blocks_reference_step(slow, scalars(t), hyperparameters, maps);
  }
  CHECK(at::allclose(fast.master, slow.master, 1e-6, 1e-6));
  CHECK(at::allclose(fast.state[1], slow.state[1], 1e-6, 0.0));
  for (const std::size_t codes : {0, 2})  // one that lies in the middle of two numbers may differ
    CHECK(fast.state[codes].ne(slow.state[codes]).sum().item<std::int64_t>() <= 5);
  const at::Tensor before = slow.state[0].clone();
  StepScalars skipped = scalars(3);
  skipped.apply.fill_(0.0);
  slow.gradient = at::full_like(slow.gradient, NAN);
  adamw_8bit::blocks_reference_step(slow, skipped, hyperparameters, maps);
  CHECK(at::equal(before, slow.state[0]));
}

TEST_CASE("moments take 2.04 bytes a parameter, and tiny tensors keep fp32") {
  const fakes::PluginLibrary library(ADAMW_8BIT_LIBRARY);
  const fakes::LoadedPlugin<Optimizer> plugin(library);
  const auto bytes = [&](std::int64_t elements) {
    const PieceInfo piece{"weight", {elements}, 0, elements};
    std::int64_t sum = 0;
    for (const StateTensor& state : plugin->state(piece))
      sum += state.elements(piece) * static_cast<std::int64_t>(c10::elementSize(state.dtype));
    return static_cast<double>(sum) / static_cast<double>(elements);
  };
  CHECK(bytes(1 << 20) == 2.0 + 2 * 4.0 / 256);
  CHECK(bytes(4097) <= 2.04);
  CHECK(bytes(4095) == 8.0);
  CHECK(plugin->unit({"weight", {64, 64}, 0, 4096}) == 256);
  CHECK(plugin->unit({"bias", {4095}, 0, 4095}) == 1);
  CHECK(plugin->takes_momentum());
  CHECK_THROWS_WITH(fakes::LoadedPlugin<Optimizer>(library, fakes::OptionTexts{{"betas", "[0.9]"}}),
                    Catch::Contains("betas must be two numbers"));
}
