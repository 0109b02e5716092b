// adafactor: torch's numbers, whole and cut over three instances.
#include <ATen/ATen.h>
#include <strata/fakes/optimizer_update.hpp>
#include <strata/fakes/plugin_library.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "catch.hpp"

using namespace strata;

namespace {

struct Start {
  std::vector<std::int64_t> shape;
  at::Tensor values;    // flat, as the gradient
  at::Tensor gradient;  // of the first step; the second has it twice, the third three times
  std::vector<double> expected;
};

// From torch.optim.Adafactor(lr=0.05, weight_decay=0.1, foreach=False): a matrix, a vector, two matrices in one tensor.
std::vector<Start> starts() {
  return {
      {{3, 4},
       at::tensor({1.0F, -2.0F, 0.5F, 3.0F, -0.25F, 0.75F, 1.5F, -1.0F, 0.1F, 0.2F, -0.3F, 0.4F}),
       at::tensor({0.1F, -0.3F, 2.0F, 0.0F, -1e-4F, 0.7F, -0.2F, 0.05F, 3.0F, -0.1F, 0.4F, -0.6F}),
       {0.977846563, -1.885409, 0.280797631, 2.95522475, -0.246248662, 0.190148517, 1.53636599, -1.03507209,
        -0.0437259227, 0.215542465, -0.323299021, 0.535850823}},
      {{5},
       at::tensor({1.0F, -2.0F, 0.5F, 3.0F, -0.25F}),
       at::tensor({0.1F, -0.3F, 2.0F, 0.0F, -1e-4F}),
       {0.720104754, -1.70517957, 0.22756727, 2.95522475, 0.0187014677}},
      {{2, 3, 4},
       (at::arange(24, at::kFloat) - 11.5) / 7,
       at::sin(at::arange(24, at::kFloat)),
       {-1.61833739,  -1.66051888,  -1.57869995,   -1.23029709, -0.899402618, -0.731024027, -0.708504021, -0.773308158,
        -0.677131772, -0.423253149, -0.0957095847, 0.122538812, 0.197164223,  0.129889518,  0.145158201,  0.336054206,
        0.706936061,  0.975172341,  1.08435869,    1.01638317,  0.999533534,  1.18952847,   1.47929537,   1.80392611}}};
}

}  // namespace

TEST_CASE("three steps of adafactor give torch's numbers, wherever the parameter is cut") {
  const fakes::PluginLibrary library(ADAFACTOR_LIBRARY);
  const fakes::OptionTexts options{{"weight_decay", "0.1"}};
  const fakes::LoadedPlugin<Optimizer> first(library, options), second(library, options), third(library, options);
  const std::array<Optimizer*, 3> instances{&*first, &*second, &*third};
  for (const Start& start : starts()) {
    const std::int64_t elements = start.values.numel();
    for (const std::vector<std::int64_t>& borders : std::vector<std::vector<std::int64_t>>{
             {0, elements}, {0, 1, 3, 4, elements}, {0, 2, elements - 1, elements}}) {
      const at::Tensor values = start.values.clone();
      std::vector<Piece> pieces;
      for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
        Piece& piece = pieces.emplace_back();
        piece.info = {"weight", start.shape, borders[i], borders[i + 1]};
        piece.master = values.slice(0, borders[i], borders[i + 1]);
        for (const StateTensor& state : first->state(piece.info))
          piece.state.push_back(at::zeros({state.elements(piece.info)}));
      }
      for (int t = 0; t < 3; ++t) {
        for (Piece& piece : pieces)
          piece.gradient =
              start.gradient.slice(0, piece.info.begin, piece.info.end) * (8.0 * (t + 1));  // as scaled by 8
        fakes::update(instances, pieces, {0.05, t, at::full({}, 0.125), at::full({}, 1.0)});
      }
      CAPTURE(start.shape, borders);
      for (std::int64_t i = 0; i < elements; ++i)
        CHECK(values[i].item<float>() == Approx(start.expected[static_cast<std::size_t>(i)]).epsilon(1e-6));
    }
  }
}

// torch.optim.Adafactor without weight decay, in fp64.
static at::Tensor by_the_formula(at::Tensor p, const std::vector<at::Tensor>& gradients, double rate, double first,
                                 double second) {
  at::Tensor rows = at::zeros({p.size(0), 1}, at::kDouble), columns = at::zeros({1, p.size(1)}, at::kDouble);
  const auto rms = [](const at::Tensor& x) { return std::sqrt(x.square().mean().item<double>()); };
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const at::Tensor g = gradients[i].to(at::kDouble);
    const auto t = static_cast<double>(i + 1);
    const double fresh = std::pow(t, -0.8);
    rows = rows.lerp(g.square().mean(1, true), fresh);
    columns = columns.lerp(g.square().mean(0, true), fresh);
    const at::Tensor v = at::matmul(rows, columns) / rows.mean().clamp_min(first);
    const at::Tensor u = v.clamp_min(first * first).rsqrt() * g;
    p = p - u * (std::max(second, rms(p)) * std::min(rate, 1 / std::sqrt(t)) / std::max(1.0, rms(u)));
  }
  return p;
}

TEST_CASE("adafactor's rate and its mean of squares are limited as torch's are") {
  const fakes::PluginLibrary library(ADAFACTOR_LIBRARY);
  at::manual_seed(3);
  const at::Tensor start = at::randn({3, 4});
  // Of mean squares of about 1/16, below the larger limit of the mean, and with factors above its square.
  const std::vector<at::Tensor> gradients{at::randn({3, 4}) / 4, at::randn({3, 4}) / 4, at::randn({3, 4}) / 4};
  for (const double rate : {0.05, 0.8})  // the second is above 1 / sqrt(t) from the second update on
    for (const char* const first : {"0.001", "0.1"}) {
      const fakes::LoadedPlugin<Optimizer> plugin(
          library, fakes::OptionTexts{{"weight_decay", "0"}, {"eps", "[" + std::string(first) + ", 0.001]"}});
      Piece piece;
      piece.info = {"weight", {3, 4}, 0, 12};
      piece.master = start.flatten().clone();
      for (const StateTensor& state : plugin->state(piece.info))
        piece.state.push_back(at::zeros({state.elements(piece.info)}));
      for (int t = 0; t < 3; ++t) {
        piece.gradient = gradients[static_cast<std::size_t>(t)].flatten();
        fakes::update(*plugin, piece, {rate, t, at::full({}, 1.0), at::full({}, 1.0)});
      }
      const at::Tensor wanted = by_the_formula(start.to(at::kDouble), gradients, rate, std::stod(first), 0.001);
      CAPTURE(rate, first, (piece.master - wanted.flatten()).abs().max().item<double>());
      CHECK(at::allclose(piece.master.to(at::kDouble), wanted.flatten(), 1e-5, 1e-6));
    }
}

TEST_CASE("adafactor keeps rows and columns of a matrix and refuses bad options") {
  const fakes::PluginLibrary library(ADAFACTOR_LIBRARY);
  const fakes::LoadedPlugin<Optimizer> plugin(library);
  const std::vector<StateTensor> matrices = plugin->state({"weight", {2, 3, 4}, 5, 7});
  REQUIRE(matrices.size() == 2);
  CHECK((matrices[0].name == "row_var" && matrices[0].whole == 6));
  CHECK((matrices[1].name == "col_var" && matrices[1].whole == 8));
  const std::vector<StateTensor> vector = plugin->state({"bias", {5}, 0, 5});
  REQUIRE(vector.size() == 1);
  CHECK((vector[0].name == "variance" && vector[0].whole == 0));
  CHECK(plugin->sums({"weight", {2, 3, 4}, 5, 7}, 0) == 14);
  CHECK(plugin->sums({"bias", {5}, 0, 5}, 0) == 0);
  CHECK_THROWS_WITH(fakes::LoadedPlugin<Optimizer>(library, fakes::OptionTexts{{"eps", "[0.1]"}}),
                    Catch::Contains("eps must be two numbers"));
}
