// Each optimizer beside its formula in fp64, as its paper or torch writes it: 20 updates of a parameter that is whole,
// or cut anywhere over two and three instances, as over ranks; by the pass over host memory, and by libtorch's
// operators, which take a gradient that is not contiguous.
#include <ATen/ATen.h>
#include <strata/error.hpp>
#include <strata/fakes/optimizer_update.hpp>
#include <strata/fakes/plugin_library.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "catch.hpp"

using namespace strata;

namespace papers_test {
namespace {

constexpr double rate = 0.02, beta1 = 0.8, beta2 = 0.95, epsilon = 1e-6, decay = 0.1;
constexpr double small_rate = 1e-3;  // all steps one way
constexpr int updates = 20;

// A parameter in fp64: values and two states, and the update of t = 1, 2, ... by gradient g.
struct Exact {
  at::Tensor p, first, second;
};
using Formula = std::function<void(Exact& x, const at::Tensor& g, int t)>;

struct Case {
  std::string title, library;
  fakes::OptionTexts options;
  std::vector<std::int64_t> shape;
  std::string parameter;
  Formula formula;
  bool by_elements;  // no sums: the pass gives equal bits for every cut
  StackedMatrices stacked = {};
  double size_of_start = 1.0;  // of the parameter's elements
};

at::Tensor corrected(const Exact& x, int t, double more) {
  return x.first / (1 - std::pow(beta1, t)) / ((x.second / (1 - std::pow(beta2, t))).sqrt() + more);
}

void take_moments(Exact& x, const at::Tensor& g, const at::Tensor& squares) {
  x.first = beta1 * x.first + (1 - beta1) * g;
  x.second = beta2 * x.second + (1 - beta2) * squares;
}

void adamw(Exact& x, const at::Tensor& g, int t) {
  take_moments(x, g, g * g);
  x.p = x.p * (1 - rate * decay) - rate * corrected(x, t, epsilon);
}

void adam(Exact& x, const at::Tensor& gradient, int t) {
  const at::Tensor g = gradient + decay * x.p;
  take_moments(x, g, g * g);
  x.p = x.p - rate * corrected(x, t, epsilon);
}

void lion(Exact& x, const at::Tensor& g, int /*t*/) {
  x.p = x.p * (1 - rate * decay) - rate * at::sign(beta1 * x.first + (1 - beta1) * g);
  x.first = beta2 * x.first + (1 - beta2) * g;
}

void adagrad(Exact& x, const at::Tensor& gradient, int t) {
  const at::Tensor g = gradient + decay * x.p;
  if (t == 1) x.first = x.first + 0.25;  // initial_accumulator_value
  x.first = x.first + g * g;
  x.p = x.p - rate / (1 + (t - 1) * 0.125) * g / (x.first.sqrt() + epsilon);
}

double bounded_ratio(const Exact& x, const at::Tensor& u, double least, double most) {
  const double weights = x.p.norm().item<double>(), update = u.norm().item<double>();
  return weights == 0 || update == 0 ? 1 : std::clamp(weights / update, least, most);
}

void lamb(Exact& x, const at::Tensor& g, int t) {
  take_moments(x, g, g * g);
  const at::Tensor u = corrected(x, t, epsilon) + decay * x.p;
  x.p = x.p - rate * bounded_ratio(x, u, 0.01, 10) * u;
}

// DeepSpeed's csrc/lamb/fused_lamb_cuda_kernel.cu.
void fused_lamb(Exact& x, const at::Tensor& g, int t) {
  take_moments(x, g, g * g);
  const at::Tensor u = x.first / (x.second.sqrt() + epsilon) + decay * x.p;
  const double step = rate * std::sqrt(1 - std::pow(beta2, t)) / (1 - std::pow(beta1, t));
  x.p = x.p - step * bounded_ratio(x, u, 0.5, 0.6) * u;
}

// `blocks`: of each row, the number of its block.
Formula adam_mini(const std::vector<std::int64_t>& blocks) {
  return [blocks](Exact& x, const at::Tensor& g, int t) {
    const at::Tensor squares = (g * g).view({std::ssize(blocks), -1}), means = squares.clone();
    for (std::int64_t row = 0; row < std::ssize(blocks); ++row) {
      std::vector<at::Tensor> rows;
      for (std::int64_t other = 0; other < std::ssize(blocks); ++other)
        if (blocks[static_cast<std::size_t>(other)] == blocks[static_cast<std::size_t>(row)])
          rows.push_back(squares[other]);
      means[row].fill_(at::cat(rows).mean());
    }
    take_moments(x, g, means.view(-1));
    x.p = x.p * (1 - rate * decay) - rate * corrected(x, t, epsilon);
  };
}

std::vector<Case> cases() {
  const fakes::OptionTexts adam_options{{"betas", "[0.8, 0.95]"}, {"epsilon", "1e-6"}, {"weight_decay", "0.1"}};
  const auto with = [&](fakes::OptionTexts more) {
    more.insert(more.end(), adam_options.begin(), adam_options.end());
    return more;
  };
  const std::vector<std::int64_t> matrix{12, 31}, rows{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const auto mini = [&](const std::string& title, const std::string& parameter, const std::string& head_size,
                        const std::vector<std::int64_t>& blocks, StackedMatrices stacked = {}) {
    return Case{
        title,  ADAM_MINI_LIBRARY, with({{"head_size", head_size}}), matrix, parameter, adam_mini(blocks), false,
        stacked};
  };
  return {
      {"adamw", ADAMW_LIBRARY, adam_options, matrix, "weight", adamw, true},
      {"adam", ADAMW_LIBRARY, with({{"decoupled", "false"}}), matrix, "weight", adam, true},
      {"lion", LION_LIBRARY, {{"betas", "[0.8, 0.95]"}, {"weight_decay", "0.1"}}, matrix, "weight", lion, true},
      {"adagrad",
       ADAGRAD_LIBRARY,
       {{"lr_decay", "0.125"}, {"initial_accumulator_value", "0.25"}, {"epsilon", "1e-6"}, {"weight_decay", "0.1"}},
       matrix,
       "weight",
       adagrad,
       true},
      {"lamb", LAMB_LIBRARY, adam_options, matrix, "weight", lamb, false},
      {"lamb as DeepSpeed's", LAMB_LIBRARY,
       with({{"bias_correction", "step_size"}, {"min_coeff", "0.5"}, {"max_coeff", "0.6"}}), matrix, "weight",
       fused_lamb, false},
      // Whose ratio of weights to update is below the least that counts.
      {"lamb, of tiny weights", LAMB_LIBRARY, adam_options, matrix, "weight", lamb, false, {}, 1e-4},
      {"lamb as DeepSpeed's, of small weights",
       LAMB_LIBRARY,
       with({{"bias_correction", "step_size"}, {"min_coeff", "0.5"}, {"max_coeff", "0.6"}}),
       matrix,
       "weight",
       fused_lamb,
       false,
       {},
       0.1},
      mini("adam_mini, rows of an MLP", "h.0.mlp.up_proj.weight", "3", rows),
      mini("adam_mini, rows of q", "h.0.self_attn.q_proj.weight", "0", rows),
      mini("adam_mini, heads of k", "h.0.self_attn.k_proj.weight", "3", {0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3}),
      mini("adam_mini, q, k and v head by head", "h.0.qkv", "2", {0, 0, 1, 1, 2, 3, 4, 4, 5, 5, 6, 7}, {3, 2}),
      mini("adam_mini, q, then k, then v", "h.0.qkv", "2", {0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7}, {3, 4}),
      mini("adam_mini, two matrices that are no q and k", "h.0.gate_up", "2", rows, {2, 6}),
      {"adam_mini, a norm", ADAM_MINI_LIBRARY, adam_options, {372}, "norm.weight", adamw, true},
  };
}

// The parameter after the updates, in the dtype in which it starts, its pieces given in turn to as many instances.
at::Tensor trained(const Case& given, const at::Tensor& start, const std::vector<std::int64_t>& borders, bool strided,
                   bool in_small_steps = false) {
  const fakes::PluginLibrary library(given.library);
  std::vector<fakes::LoadedPlugin<Optimizer>> loaded;
  for (std::size_t i = 0; i + 1 < borders.size(); ++i) loaded.emplace_back(library, given.options);
  std::vector<Optimizer*> instances;
  for (auto& instance : loaded) instances.push_back(&*instance);
  const at::Tensor values = start.clone();
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
    Piece& piece = pieces.emplace_back();
    piece.info = {given.parameter, given.shape, borders[i], borders[i + 1]};
    piece.info.stacked = given.stacked;
    piece.master = values.slice(0, borders[i], borders[i + 1]);
    for (const StateTensor& state : instances[0]->state(piece.info))
      piece.state.push_back(at::zeros({state.whole > 0 ? state.whole : piece.master.numel()}, state.dtype));
  }
  at::manual_seed(2);
  for (int t = 0; t < updates; ++t) {
    at::Tensor gradient = at::randn({start.numel()});
    if (in_small_steps) gradient = gradient.abs();
    for (Piece& piece : pieces) {
      const at::Tensor part = gradient.slice(0, piece.info.begin, piece.info.end) * 8;  // as scaled by 8
      piece.gradient = strided ? at::stack({part, part}, 1).select(1, 0) : part;
    }
    fakes::update(instances, pieces, {in_small_steps ? small_rate : rate, t, at::full({}, 0.125), at::full({}, 1.0)});
  }
  return values;
}

at::Tensor exact(const Case& given, const at::Tensor& start) {
  Exact x{start.to(at::kDouble), at::zeros({start.numel()}, at::kDouble), at::zeros({start.numel()}, at::kDouble)};
  at::manual_seed(2);
  for (int t = 1; t <= updates; ++t) given.formula(x, at::randn({start.numel()}).to(at::kDouble), t);
  return x.p;
}

at::Tensor start_of(const Case& given) {
  at::manual_seed(1);
  return at::randn({given.shape.size() == 1 ? given.shape[0] : given.shape[0] * given.shape[1]}) * given.size_of_start;
}

}  // namespace

TEST_CASE("a scheduled momentum is the first of betas in every place of the formula") {
  for (const Case& given : cases()) {
    const fakes::PluginLibrary library(given.library);
    fakes::OptionTexts changed = given.options;
    const auto betas = std::ranges::find(changed, "betas", [](const auto& option) { return option.first; });
    if (betas == changed.end() || betas->second != "[0.8, 0.95]") continue;
    betas->second = "[0.7, 0.95]";
    const fakes::LoadedPlugin<Optimizer> plugin(library, given.options), of_option(library, changed);
    if (!plugin->takes_momentum()) continue;
    const auto trained = [&](Optimizer& optimizer, std::optional<double> momentum) {
      Piece piece;
      piece.info = {given.parameter, given.shape, 0, 372};
      piece.info.stacked = given.stacked;
      piece.master = start_of(given);
      for (const StateTensor& state : optimizer.state(piece.info))
        piece.state.push_back(at::zeros({state.whole > 0 ? state.whole : 372}, state.dtype));
      at::manual_seed(2);
      for (int t = 0; t < 3; ++t) {
        piece.gradient = at::randn({372});
        fakes::update(optimizer, piece, {rate, t, at::full({}, 1.0), at::full({}, 1.0), momentum});
      }
      return piece.master;
    };
    CAPTURE(given.title);
    CHECK(at::equal(trained(*plugin, 0.7), trained(*of_option, {})));
  }
}

TEST_CASE("a skipped update changes no bit of a parameter or its state") {
  for (const Case& given : cases()) {
    const fakes::PluginLibrary library(given.library);
    const fakes::LoadedPlugin<Optimizer> plugin(library, given.options);
    Piece piece;
    piece.info = {given.parameter, given.shape, 0, 372};
    piece.info.stacked = given.stacked;
    piece.master = start_of(given);
    for (const StateTensor& state : plugin->state(piece.info))
      piece.state.push_back(at::zeros({state.whole > 0 ? state.whole : 372}, state.dtype));
    piece.gradient = at::randn({372});
    fakes::update(*plugin, piece, {rate, 0, at::full({}, 1.0), at::full({}, 1.0)});
    const at::Tensor before = piece.master.clone();
    std::vector<at::Tensor> states;
    for (const at::Tensor& state : piece.state) states.push_back(state.clone());
    piece.gradient = at::full({372}, std::numeric_limits<float>::infinity());
    fakes::update(*plugin, piece, {rate, 1, at::full({}, 1.0), at::full({}, 0.0)});
    CAPTURE(given.title);
    CHECK(at::equal(piece.master, before));
    for (std::size_t i = 0; i < states.size(); ++i) CHECK(at::equal(piece.state[i], states[i]));
  }
}

TEST_CASE("twenty updates follow the formula, for any cut and way of computing") {
  for (const Case& given : cases()) {
    const at::Tensor start = start_of(given), wanted = exact(given, start);
    const at::Tensor whole = trained(given, start, {0, 372}, false);
    for (const std::vector<std::int64_t>& borders :
         std::vector<std::vector<std::int64_t>>{{0, 372}, {0, 40, 372}, {0, 1, 200, 372}})
      for (const bool strided : {false, true}) {
        const at::Tensor values = trained(given, start, borders, strided);
        CAPTURE(given.title, borders, strided, (values - wanted).abs().max().item<double>());
        CHECK(at::allclose(values.to(at::kDouble), wanted, 1e-6, 1e-6));
        if (given.by_elements && !strided) CHECK(at::equal(values, whole));
      }
  }
}

TEST_CASE("moments of bf16 take half the memory, and are refused where one could not decay") {
  const fakes::PluginLibrary library(ADAMW_LIBRARY);
  using Plugin = fakes::LoadedPlugin<Optimizer>;
  const Plugin plugin(library, {{"moments", "bf16"}, {"betas", "[0.8, 0.95]"}});
  for (const StateTensor& state : plugin->state({"weight", {4, 4}, 0, 16})) CHECK(state.dtype == at::kBFloat16);
  CHECK_THROWS_WITH(Plugin(library, fakes::OptionTexts{{"moments", "bf16"}}),
                    Catch::Contains("betas is [0.9") && Catch::Contains("moments is bf16") && Catch::Contains("0.996"));
  // The bound of that rule: 1 - 2^-8 lets every number fall, and with 0.999 none does.
  const at::Tensor v = at::arange(128, 256).to(at::kBFloat16);  // all numbers of one binary order
  CHECK(((v.to(at::kFloat) * (1 - 0x1p-8)).to(at::kBFloat16) < v).sum().item<int>() >= 127);
  CHECK(at::equal((v.to(at::kFloat) * 0.999).to(at::kBFloat16), v));
  // Beside moments of fp32: the update keeps 8 bits of each moment.
  const fakes::OptionTexts options{{"betas", "[0.8, 0.95]"}};
  Case given{"", ADAMW_LIBRARY, options, {372}, "weight", {}, true};
  const at::Tensor start = start_of(given), wide = trained(given, start, {0, 372}, false);
  given.options.push_back({"moments", "bf16"});
  const at::Tensor narrow = trained(given, start, {0, 372}, false);
  const double moved = (wide - start).norm().item<double>(), apart = (wide - narrow).norm().item<double>();
  CAPTURE(apart / moved);
  CHECK((apart > 1e-4 * moved && apart < 0x1p-8 * moved));
  CHECK(at::equal(narrow, trained(given, start, {0, 1, 200, 372}, false)));
}

// Elements draw their rounding by their number in the parameter, in whichever tile of which piece they are computed.
static void check_cuts_of_many_tiles(Case given) {
  if (!given.by_elements) return;
  constexpr std::int64_t elements = 9000;  // some tiles
  given.shape = {elements};
  const at::Tensor start = at::full({elements}, 1.0).to(at::kBFloat16);
  const at::Tensor whole = trained(given, start, {0, elements}, false, true);
  for (const std::vector<std::int64_t>& borders :
       std::vector<std::vector<std::int64_t>>{{0, 1, elements}, {0, 2048, 4096, elements}, {0, 5000, 5001, elements}}) {
    CAPTURE(given.title, borders);
    CHECK(at::equal(trained(given, start, borders, false, true), whole));
  }
}

TEST_CASE("a master of bf16 follows the fp32 one in the mean, wherever it is cut") {
  for (Case given : cases()) {
    given.options.erase(std::remove_if(given.options.begin(), given.options.end(),
                                       [](const auto& option) { return option.first == "weight_decay"; }),
                        given.options.end());
    // Below 1 the numbers of bf16 are 1/256 apart, and a step is less than half of that: to nearest, nothing moves.
    check_cuts_of_many_tiles(given);
    const at::Tensor start = at::full({372}, 1.0), narrow = start.to(at::kBFloat16);
    const at::Tensor wide = trained(given, start, {0, 372}, false, true);
    const at::Tensor values = trained(given, narrow, {0, 372}, false, true);
    const double moved = (start - wide).sum().item<double>();
    const double found = (start - values.to(at::kFloat)).sum().item<double>();
    CAPTURE(given.title, moved, found);
    CHECK(moved > 1.0);
    // A step by s becomes one of 1/256 with the probability 256 s, whose variance is below s/256.
    CHECK(std::abs(found - moved) <= 4 * std::sqrt(moved / 256));
    if (!given.by_elements) continue;
    CHECK(at::equal(values, trained(given, narrow, {0, 1, 200, 372}, false, true)));
  }
}

TEST_CASE("impossible combinations are refused by name") {
  using Plugin = fakes::LoadedPlugin<Optimizer>;
  const fakes::PluginLibrary lamb_library(LAMB_LIBRARY), mini_library(ADAM_MINI_LIBRARY), lion_library(LION_LIBRARY);
  CHECK_THROWS_WITH(Plugin(lamb_library, fakes::OptionTexts{{"min_coeff", "2"}, {"max_coeff", "1"}}),
                    Catch::Contains("min_coeff is 2") && Catch::Contains("max_coeff"));
  CHECK_THROWS_WITH(Plugin(lion_library, fakes::OptionTexts{{"betas", "[0.9]"}}), Catch::Contains("lion: betas"));
  const Plugin mini(mini_library, {{"head_size", "5"}});
  CHECK_THROWS_WITH(mini->state({"h.0.self_attn.q_proj.weight", {12, 4}, 0, 48}),
                    Catch::Contains("head_size is 5") && Catch::Contains("q_proj.weight has 12 rows in sequence"));
  CHECK_THROWS_WITH(mini->state({"h.0.qkv", {12, 4}, 0, 48, true, {3, 4}}),
                    Catch::Contains("h.0.qkv has 4 rows of q in sequence"));
  CHECK(mini->state({"h.0.mlp.up_proj.weight", {12, 4}, 0, 48}).at(1).whole == 12);
}

TEST_CASE("a parameter of zeros, and one without a gradient, are stepped by lamb with the ratio 1") {
  const fakes::PluginLibrary library(LAMB_LIBRARY);
  const fakes::LoadedPlugin<Optimizer> plugin(library);
  for (const double value : {0.0, 1.0}) {
    Piece piece;
    piece.info = {"bias", {5}, 0, 5};
    piece.master = at::full({5}, value);
    piece.gradient = at::full({5}, 1.0 - value);
    piece.state = {at::zeros({5}), at::zeros({5})};
    fakes::update(*plugin, piece, {rate, 0, at::full({}, 1.0), at::full({}, 1.0)});
    CHECK(at::allclose(piece.master, at::full({5}, value == 0.0 ? -rate : 1.0)));
  }
}

}  // namespace papers_test
