// muon: orthogonalization against singular values in fp64, the update against torch.optim.Muon's formula, and matrices
// put together from the parts of ranks.
#include <ATen/ATen.h>
#include <strata/fakes/local_group.hpp>
#include <strata/fakes/optimizer_update.hpp>
#include <strata/fakes/plugin_library.hpp>

#include <array>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "muon/orthogonalize.hpp"
#include "muon/shared_matrices.hpp"

using namespace strata;
using muon::Coefficients;

namespace {

// The steps change singular values only: U p(S) V^T in fp64. p's coefficients: for the quintic those of Keller Jordan's
// Muon; for Polar Express those of modded-nanogpt's train_gpt.py, rounded to four decimals as the plugin has them.
at::Tensor by_singular_values(const at::Tensor& matrix, int steps, bool express) {
  const std::vector<std::array<double, 3>> published{{8.156554524902461, -22.48329292557795, 15.878769915207462},
                                                     {4.042929935166739, -2.808917465908714, 0.5000178451051316},
                                                     {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
                                                     {3.285753657755655, -2.3681294933425376, 0.46449024233002577},
                                                     {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}};
  const auto [u, s, vh] = at::linalg_svd(matrix.to(at::kDouble), false);
  at::Tensor x = s / (s.norm() * (express ? 1.01 : 1.0));
  for (int i = 0; i < steps; ++i) {
    std::array<double, 3> c =
        express ? published[static_cast<std::size_t>(std::min(i, 4))] : std::array<double, 3>{3.4445, -4.7750, 2.0315};
    for (double& value : c) value = std::round(value * 1e4) / 1e4;
    x = c[0] * x + c[1] * x.pow(3) + c[2] * x.pow(5);
  }
  return at::matmul(u * x, vh);
}

PieceInfo info_of(const std::string& name, std::vector<std::int64_t> shape, bool linear = true,
                  StackedMatrices stacked = {}) {
  ParameterInfo parameter;
  parameter.name = name;
  parameter.shape = std::move(shape);
  parameter.linear_only = linear;
  parameter.stacked = stacked;
  return PieceInfo::whole(parameter);
}

Piece piece_of(const Optimizer& optimizer, const PieceInfo& info) {
  Piece piece;
  piece.info = info;
  piece.master = at::randn({info.end});
  piece.gradient = at::randn({info.end});
  for (const StateTensor& state : optimizer.state(info)) piece.state.push_back(at::zeros({state.elements(info)}));
  return piece;
}

StepScalars step_scalars(int t, double rate = 0.02) {
  return {rate, t, at::full({}, 0.5F), at::full({}, 1.0F)};
}

double largest(const at::Tensor& difference) {
  return difference.abs().max().item<double>();
}

}  // namespace

TEST_CASE("orthogonalization acts on singular values as published") {
  at::manual_seed(1);
  for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{{48, 48}, {96, 32}, {32, 96}}) {
    const at::Tensor matrix = at::randn(shape) * 1e-3;
    for (const bool express : {false, true}) {
      CAPTURE(shape, express);
      const Coefficients coefficients = express ? Coefficients::PolarExpress : Coefficients::Quintic;
      for (const int steps : {1, 5, 7}) {
        const at::Tensor found = muon::orthogonalize(matrix, steps, coefficients, at::kFloat).to(at::kDouble);
        CHECK(largest(found - by_singular_values(matrix, steps, express)) <= 2e-5);
      }
      const at::Tensor singular =
          at::linalg_svdvals(muon::orthogonalize(matrix, 5, coefficients, at::kFloat).to(at::kDouble));
      // Random matrices that are square have singular values near 0, which five steps do not bring all the way.
      CAPTURE(singular.min().item<double>(), singular.max().item<double>());
      // What the steps are for: singular values of about 1.
      CHECK(singular.max().item<double>() < 1.25);
      if (shape[0] != shape[1]) CHECK(singular.min().item<double>() > (express ? 0.82 : 0.65));
    }
  }
  CHECK(muon::orthogonalize(at::zeros({4, 3}), 5, Coefficients::Quintic, at::kFloat).eq(0).all().item<bool>());
}

TEST_CASE("twenty steps are torch.optim.Muon's, in fp64") {
  const fakes::PluginLibrary library(MUON_LIBRARY);
  const std::vector<fakes::OptionTexts> all{{},
                                            {{"nesterov", "false"}},
                                            {{"scale", "moonlight"}},
                                            {{"coefficients", "polar_express"}},
                                            {{"momentum", "0.8"}}};
  for (const fakes::OptionTexts& options : all)
    for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{{24, 24}, {40, 8}, {8, 40}}) {
      const fakes::LoadedPlugin<Optimizer> plugin(library, options);
      CAPTURE(options.empty() ? "" : options[0].first, shape);
      at::manual_seed(2);
      const auto option = [&](const std::string& name, const std::string& without) {
        return options.empty() || options[0].first != name ? without : options[0].second;
      };
      const double momentum = std::stod(option("momentum", "0.95")), rate = 0.02;
      const double rows = static_cast<double>(shape[0]), columns = static_cast<double>(shape[1]);
      const double scale = option("scale", "original") == "original" ? std::sqrt(std::max(1.0, rows / columns))
                                                                     : 0.2 * std::sqrt(std::max(rows, columns));
      Piece piece = piece_of(*plugin, info_of("layer.weight", shape));
      at::Tensor p = piece.master.to(at::kDouble).view(shape), buffer = at::zeros_like(p);
      for (int t = 0; t < 20; ++t) {
        piece.gradient = at::randn({piece.info.end});
        const at::Tensor g = piece.gradient.to(at::kDouble).view(shape) * 0.5;
        buffer = momentum * buffer + (1 - momentum) * g;
        const at::Tensor direction =
            option("nesterov", "true") == "true" ? momentum * buffer + (1 - momentum) * g : buffer;
        p = p * (1 - rate * 0.1) -
            rate * scale * by_singular_values(direction, 5, option("coefficients", "quintic") == "polar_express");
        fakes::update(*plugin, piece, step_scalars(t, rate));
      }
      CHECK(largest(piece.master.view(shape) - p) <= 2e-5);
      CHECK(largest(piece.state[0].view(shape) - buffer) <= 1e-6);
    }
}

TEST_CASE("q, k and v in one weight are three matrices, one after the other or head by head") {
  const fakes::PluginLibrary library(MUON_LIBRARY);
  const fakes::LoadedPlugin<Optimizer> plugin(library);
  constexpr std::int64_t columns = 24, rows = 24;  // of each
  for (const std::int64_t turn : {rows, rows / 4}) {
    CAPTURE(turn);
    Piece stacked = piece_of(*plugin, info_of("qkv", {3 * rows, columns}, true, {3, turn}));
    CHECK(plugin->unit(stacked.info) == (turn == rows ? rows * columns : 3 * rows * columns));
    const auto matrix = [&](const at::Tensor& all, std::int64_t number) {
      return all.view({-1, 3, turn, columns}).select(1, number).reshape({-1});
    };
    std::vector<Piece> alone;
    for (int number = 0; number < 3; ++number) {
      Piece& piece = alone.emplace_back(piece_of(*plugin, info_of("one", {rows, columns})));
      piece.master = matrix(stacked.master, number).clone();
    }
    for (int t = 0; t < 3; ++t) {
      stacked.gradient = at::randn({3 * rows * columns});
      fakes::update(*plugin, stacked, step_scalars(t));
      for (int number = 0; number < 3; ++number) {
        Piece& piece = alone[static_cast<std::size_t>(number)];
        piece.gradient = matrix(stacked.gradient, number);
        fakes::update(*plugin, piece, step_scalars(t));
        CHECK(at::equal(matrix(stacked.master, number), piece.master));
      }
    }
  }
}

TEST_CASE("a piece of two of three matrices is updated as the whole is") {
  const fakes::PluginLibrary library(MUON_LIBRARY);
  const fakes::LoadedPlugin<Optimizer> plugin(library);
  const PieceInfo info = info_of("qkv", {3 * 16, 16}, true, {3, 16});
  Piece whole = piece_of(*plugin, info), cut = whole;
  cut.info.begin = 256;
  cut.master = whole.master.narrow(0, 256, 512).clone();
  cut.gradient = whole.gradient.narrow(0, 256, 512);
  cut.state[0] = at::zeros({512});
  fakes::update(*plugin, whole, step_scalars(0));
  fakes::update(*plugin, cut, step_scalars(0));
  CHECK(at::equal(whole.master.narrow(0, 256, 512), cut.master));
}

TEST_CASE("parameters other than hidden matrices are updated by adamw, at its own rate") {
  const fakes::PluginLibrary library(MUON_LIBRARY), adamw_library(ADAMW_LIBRARY);
  const fakes::OptionTexts options{{"adamw_rate", "0.25"}, {"adamw_betas", "[0.8, 0.9]"}, {"adamw_epsilon", "0.1"}};
  const fakes::OptionTexts of_adamw{{"betas", "[0.8, 0.9]"}, {"weight_decay", "0.1"}, {"epsilon", "0.1"}};
  const fakes::LoadedPlugin<Optimizer> plugin(library, options), adamw(adamw_library, of_adamw);
  for (const PieceInfo& info : {info_of("embedding", {10, 6}, false), info_of("norm", {7}, true)})
    for (const double of_a_rule : {1.0, 0.5}) {
      CAPTURE(info.parameter, of_a_rule);
      CHECK(plugin->unit(info) == 1);
      Piece found = piece_of(*plugin, info), expected = found;
      expected.master = found.master.clone();
      for (at::Tensor& state : expected.state) state = state.clone();
      found.learning_rate_factor = of_a_rule;
      for (int t = 0; t < 3; ++t) {
        fakes::update(*plugin, found, step_scalars(t, 0.02));
        fakes::update(*adamw, expected, step_scalars(t, 0.005 * of_a_rule));
      }
      CHECK(at::equal(found.master, expected.master));
      CHECK(found.learning_rate_factor == of_a_rule);
    }
}

TEST_CASE("the matrices can be named, and bad options are refused") {
  const fakes::PluginLibrary library(MUON_LIBRARY);
  const fakes::LoadedPlugin<Optimizer> plugin(library, {{"matrices", "*.up.weight layer.?.down"}});
  CHECK(plugin->unit(info_of("layer.0.up.weight", {8, 4}, false)) == 32);
  CHECK(plugin->unit(info_of("layer.3.down", {8, 4})) == 32);
  CHECK(plugin->unit(info_of("layer.33.down", {8, 4})) == 1);
  CHECK(plugin->state(info_of("layer.3.down", {8, 4})).at(0).name == "momentum_buffer");
  CHECK_THROWS_WITH(fakes::LoadedPlugin<Optimizer>(library, fakes::OptionTexts{{"momentum", "1"}}),
                    Catch::Contains("momentum must be below 1"));
  CHECK_THROWS_WITH(fakes::LoadedPlugin<Optimizer>(library, fakes::OptionTexts{{"adamw_betas", "[0.9]"}}),
                    Catch::Contains("adamw_betas must be two numbers"));
}

TEST_CASE("parts of matrices are joined, and ranks compute about equally many") {
  constexpr int ranks = 3;
  // Of each the part's shape, and whether parts are columns.
  const std::vector<std::tuple<std::int64_t, std::int64_t, bool>> shapes{
      {4, 6, false}, {5, 2, true}, {4, 6, false}, {4, 6, false}, {5, 2, true}, {5, 2, true}, {1, 3, false}};
  at::manual_seed(3);
  std::vector<at::Tensor> wholes, expected;
  for (const auto& [rows, columns, by_columns] : shapes) {
    wholes.push_back(by_columns ? at::randn({rows, ranks * columns}) : at::randn({ranks * rows, columns}));
    expected.push_back(muon::orthogonalize(wholes.back(), 5, Coefficients::Quintic, at::kFloat));
  }
  const auto part = [&](const at::Tensor& whole, std::size_t i, int rank) {
    return whole.chunk(ranks, std::get<2>(shapes[i]) ? 1 : 0)[static_cast<std::size_t>(rank)].contiguous();
  };
  const auto groups = fakes::local_groups(ranks, std::chrono::seconds(10));
  std::vector<std::vector<muon::SharedMatrix>> held(ranks);
  std::vector<int> computed(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const auto mine = static_cast<std::size_t>(rank);
      for (std::size_t i = 0; i < shapes.size(); ++i)
        held[mine].push_back({part(wholes[i], i, rank), std::get<2>(shapes[i])});
      muon::orthogonalize_shared(*groups[mine], held[mine], [&](const at::Tensor& whole) {
        ++computed[mine];
        return muon::orthogonalize(whole, 5, Coefficients::Quintic, at::kFloat);
      });
    });
  for (std::thread& thread : threads) thread.join();
  for (int rank = 0; rank < ranks; ++rank)
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      CAPTURE(rank, i);
      CHECK(at::equal(held[static_cast<std::size_t>(rank)][i].part, part(expected[i], i, rank)));
    }
  std::ranges::sort(computed);
  CHECK(computed == std::vector<int>{2, 2, 3});
}
