// schedule_free beside AdamWScheduleFree as the authors' package writes it, in fp64: y is the parameter, z is stepped,
// and what an evaluation sees, lerp(y, z, 1 - 1 / beta1), is the master. schedulefree 1.4.1 in fp64, with these
// settings and gradients drawn alike, was within 5e-16 of by_the_package().
#include <ATen/ATen.h>
#include <strata/fakes/optimizer_update.hpp>
#include <strata/fakes/plugin_library.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "catch.hpp"

using namespace strata;

namespace schedule_free_test {
namespace {

constexpr int updates = 20;
constexpr std::int64_t elements = 372;

struct Settings {
  double beta1, beta2, epsilon, decay, r, power;
  std::vector<double> rates;

  fakes::OptionTexts options() const {
    return {{"betas", "[" + std::to_string(beta1) + ", " + std::to_string(beta2) + "]"},
            {"epsilon", std::to_string(epsilon)},
            {"weight_decay", std::to_string(decay)},
            {"r", std::to_string(r)},
            {"weight_lr_power", std::to_string(power)}};
  }
};

// A rate that rises to its largest, falls, and rises above it again.
std::vector<double> rates(double scale) {
  std::vector<double> all;
  for (int k = 0; k < updates; ++k) all.push_back(scale * (k < 4 ? (k + 1) / 4.0 : k < 12 ? 1.0 - k / 16.0 : k / 10.0));
  return all;
}

std::vector<Settings> tried() {
  return {{0.9, 0.999, 1e-6, 0.0, 0.0, 2.0, std::vector<double>(updates, 0.02)},
          {0.8, 0.95, 1e-6, 0.1, 0.0, 2.0, rates(0.02)},
          {0.95, 0.99, 1e-3, 0.05, 1.0, 0.0, rates(0.02)},
          {0.9, 0.99, 1e-6, 0.1, 0.5, 1.0, rates(0.005)}};
}

at::Tensor gradient_of(int k) {
  at::manual_seed(100 + static_cast<std::uint64_t>(k));
  return at::randn({elements});
}

at::Tensor start() {
  at::manual_seed(1);
  return at::randn({elements});
}

struct Exact {
  at::Tensor y, z, x;
};

// schedulefree.AdamWScheduleFree.step and eval.
Exact by_the_package(const Settings& s, int steps) {
  at::Tensor y = start().to(at::kDouble), z = y.clone(), squares = at::zeros({elements}, at::kDouble);
  double lr_max = -1.0, weight_sum = 0.0;
  for (int k = 0; k < steps; ++k) {
    const double lr = s.rates[static_cast<std::size_t>(k)];
    lr_max = std::max(lr, lr_max);
    const double weight = std::pow(k + 1, s.r) * std::pow(lr_max, s.power);
    weight_sum += weight;
    const double ckp1 = weight / weight_sum;
    const at::Tensor g = gradient_of(k).to(at::kDouble);
    squares = squares * s.beta2 + (1 - s.beta2) * g * g;
    const at::Tensor denominator = (squares / (1 - std::pow(s.beta2, k + 1))).sqrt() + s.epsilon;
    const at::Tensor normalized = g / denominator + s.decay * y;
    y = y.lerp(z, ckp1) + lr * (s.beta1 * (1 - ckp1) - 1) * normalized;
    z = z - lr * normalized;
  }
  return {y, z, y.lerp(z, 1 - 1 / s.beta1)};
}

struct Found {
  at::Tensor master, parameter, ahead;
};

// The piece from each border to the next is given to an instance of its own.
Found trained(const Settings& s, const std::vector<std::int64_t>& borders, bool strided,
              at::ScalarType format = at::kFloat, at::ScalarType master = at::kFloat) {
  const fakes::PluginLibrary library(SCHEDULE_FREE_LIBRARY);
  std::vector<fakes::LoadedPlugin<Optimizer>> loaded;
  std::vector<Optimizer*> instances;
  for (std::size_t i = 0; i + 1 < borders.size(); ++i) loaded.emplace_back(library, s.options());
  for (auto& instance : loaded) instances.push_back(&*instance);
  const Found found{start().to(master), at::empty({elements}, format), at::zeros({elements})};
  const at::Tensor squares = at::zeros({elements});
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
    Piece& piece = pieces.emplace_back();
    piece.info = {"weight", {12, 31}, borders[i], borders[i + 1]};
    const auto part = [&](const at::Tensor& all) { return all.slice(0, borders[i], borders[i + 1]); };
    piece.master = part(found.master);
    piece.parameter = part(found.parameter);
    piece.state = {part(squares), part(found.ahead), at::zeros({2}, at::kDouble)};
  }
  for (int k = 0; k < updates; ++k) {
    for (Piece& piece : pieces) {
      const at::Tensor part = gradient_of(k).slice(0, piece.info.begin, piece.info.end) * 8;  // as scaled by 8
      piece.gradient = strided ? at::stack({part, part}, 1).select(1, 0) : part;
    }
    fakes::update(instances, pieces, {s.rates[static_cast<std::size_t>(k)], k, at::full({}, 0.125), at::full({}, 1.0)});
  }
  return found;
}

bool are_close(const at::Tensor& found, const at::Tensor& wanted) {
  return at::allclose(found.to(at::kDouble), wanted, 1e-6, 1e-6);
}

}  // namespace

TEST_CASE("twenty updates of schedule_free equal the package's y, z and x, for any cut") {
  for (const Settings& s : tried()) {
    const Exact wanted = by_the_package(s, updates);
    const Found whole = trained(s, {0, elements}, false);
    for (const std::vector<std::int64_t>& borders :
         std::vector<std::vector<std::int64_t>>{{0, elements}, {0, 40, elements}, {0, 1, 200, elements}})
      for (const bool strided : {false, true}) {
        const Found found = trained(s, borders, strided);
        CAPTURE(s.r, s.power, borders, strided, (found.master - wanted.x).abs().max().item<double>());
        CHECK(are_close(found.master, wanted.x));
        CHECK(are_close(found.parameter, wanted.y));
        CHECK(are_close(found.master + found.ahead, wanted.z));
        if (strided) continue;
        CHECK(at::equal(found.master, whole.master));
        CHECK(at::equal(found.parameter, whole.parameter));
      }
  }
}

TEST_CASE("bf16 parameters are y rounded, and a bf16 master follows fp32's") {
  const Settings s = tried().front();
  const Found wide = trained(s, {0, elements}, false), rounded = trained(s, {0, elements}, false, at::kBFloat16);
  CHECK(at::equal(rounded.master, wide.master));
  CHECK(at::equal(rounded.parameter, wide.parameter.to(at::kBFloat16)));
  const Found narrow = trained(s, {0, elements}, false, at::kBFloat16, at::kBFloat16);
  CHECK(at::equal(narrow.parameter, (narrow.master.to(at::kFloat) + 0.1F * narrow.ahead).to(at::kBFloat16)));
  // 20 roundings of numbers of about 1, each by less than 2^-8 of them and in the mean by nothing.
  const double apart = (narrow.master.to(at::kFloat) - wide.master).norm().item<double>() / std::sqrt(elements);
  CAPTURE(apart);
  CHECK((apart > 0x1p-10 && apart < 0x1p-8 * std::sqrt(updates)));
}

TEST_CASE("a skipped update changes no bit of schedule_free's state") {
  const Settings s = tried().front();
  const fakes::PluginLibrary library(SCHEDULE_FREE_LIBRARY);
  for (const bool strided : {false, true}) {
    const fakes::LoadedPlugin<Optimizer> plugin(library, s.options());
    Piece piece;
    piece.info = {"weight", {12, 31}, 0, elements};
    piece.master = start();
    piece.parameter = at::empty({elements});
    piece.state = {at::zeros({elements}), at::zeros({elements}), at::zeros({2}, at::kDouble)};
    const auto update = [&](int k, const at::Tensor& gradient, double apply) {
      piece.gradient = strided ? at::stack({gradient, gradient}, 1).select(1, 0) : gradient;
      fakes::update(*plugin, piece, {0.01, k, at::full({}, 1.0), at::full({}, apply)});
    };
    update(0, gradient_of(0), 1.0);
    const auto kept = [&] {
      std::vector<at::Tensor> all{piece.master.clone(), piece.parameter.clone()};
      for (const at::Tensor& state : piece.state) all.push_back(state.clone());
      return all;
    };
    const std::vector<at::Tensor> before = kept();
    update(1, at::full({elements}, std::numeric_limits<float>::infinity()), 0.0);
    const std::vector<at::Tensor> after = kept();
    for (std::size_t i = 0; i < before.size(); ++i) {
      CAPTURE(strided, i);
      CHECK(at::equal(after[i], before[i]));
    }
  }
}

TEST_CASE("updates at a rate of 0 take nothing into the average") {
  Settings s = tried().front();
  std::fill_n(s.rates.begin(), 3, 0.0);
  const Found found = trained(s, {0, elements}, false);
  CHECK(found.master.isfinite().all().item<bool>());
  CHECK_FALSE(at::equal(found.master, start()));
}

}  // namespace schedule_free_test
