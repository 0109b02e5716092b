// fp8 and mxfp8: products of rounded operands, which weights stay in bf16, and scales of the steps before.
#include <ATen/ATen.h>
#include <strata/fakes/plugin_library.hpp>
#include <strata/fakes/run_context.hpp>
#include <strata/fakes/saved_state.hpp>
#include <strata/model.hpp>
#include <strata/precision_policy.hpp>
#include <strata/toolbox/eight_bits.hpp>
#include <strata/toolbox/product.hpp>
#include <strata/weight_code.hpp>

#include <cmath>
#include <functional>
#include <limits>

#include "catch.hpp"

using namespace strata;
using fakes::OptionTexts;
using fakes::PluginLibrary;
using fakes::SavedState;

namespace {

ParameterInfo weight_of(int layer) {
  ParameterInfo info;
  info.name = "layers." + std::to_string(layer) + ".dense.weight";
  info.shape = {24, 40};
  info.linear_only = true;
  return info;
}

std::vector<LayerInfo> four_layers() {
  std::vector<LayerInfo> layers;
  for (int layer = 0; layer < 4; ++layer) layers.push_back({.name = "block", .parameters = {weight_of(layer)}});
  return layers;
}

// A policy in a run over four layers.
struct Running {
  explicit Running(const char* file, const OptionTexts& options = {}) : policy(PluginLibrary(file), options) {
    policy->run_begins(run);
    policy->attach(four_layers());
  }
  PrecisionPolicy* operator->() { return &*policy; }

  fakes::FakeRunContext run;
  fakes::LoadedPlugin<PrecisionPolicy> policy;
};

// Operands of a product with a weight of the first layer but where another is given. Rows of x, and rows of w, are of
// very different sizes, and dy makes up for it: along one dimension a scale fits all, along the other it loses some.
struct Operands {
  explicit Operands(int layer = 0, double size = 1.0) {
    const at::Tensor halves = at::exp2(-2.0 * at::arange(15)).view({15, 1}),
                     of_w = at::exp2(-at::arange(24)).view({24, 1});
    x = (at::randn({15, 40}) * halves * size).to(at::kBFloat16).view({3, 5, 40});
    w = {weight_of(layer), (at::randn({24, 40}) * of_w).to(at::kBFloat16)};
    b = at::randn({24}).to(at::kBFloat16);
    dy = (at::randn({15, 24}) * 1e-8 / halves / of_w.t()).to(at::kBFloat16);
  }
  at::Tensor rows() const { return x.view({15, 40}); }
  at::Tensor x, b, dy;
  Parameter w;
};

using Round = std::function<at::Tensor(const at::Tensor& tensor, int dimension)>;

at::Tensor by_tensor(const at::Tensor& tensor, const EightBits& format) {
  return rounded(tensor, power_of_two(largest_magnitude(tensor), format), format);
}
at::Tensor by_blocks(const at::Tensor& tensor, int dimension) {
  return dimension == 1 ? rounded_by_blocks(tensor, e4m3) : rounded_by_blocks(tensor.t().contiguous(), e4m3).t();
}

// The three products by their definition in float64: of operands that `input` rounds along the sum's dimension, and
// `gradient` those of the output. Off by a rounding to bf16 and what fp32 accumulates.
void check_products(PrecisionPolicy& policy, const Operands& of, const Round& input, const Round& gradient) {
  const auto close = [](const at::Tensor& found, const at::Tensor& left, const at::Tensor& right,
                        const at::Tensor& added = {}) {
    const at::Tensor x = left.to(at::kDouble), y = right.to(at::kDouble);
    const at::Tensor sum = added.defined() ? at::mm(x, y) + added.to(at::kDouble) : at::mm(x, y);
    const at::Tensor allowed = sum.abs() * std::ldexp(1.0, -8) + at::mm(x.abs(), y.abs()) * std::ldexp(1.0, -18);
    CHECK(((found.to(at::kDouble).view(sum.sizes()) - sum).abs() <= allowed).all().item<bool>());
  };
  close(policy.linear(of.x, of.w, of.b), input(of.rows(), 1), input(of.w.tensor, 1).t(), of.b);
  close(policy.linear(of.x, of.w, {}), input(of.rows(), 1), input(of.w.tensor, 1).t());
  close(policy.input_gradient(of.dy, of.w), gradient(of.dy, 1), input(of.w.tensor, 0));
  const at::Tensor into = at::zeros({24, 40});
  policy.add_weight_gradient(of.dy, of.rows(), of.w.info, into, false);
  close(into, gradient(of.dy, 0).t(), input(of.rows(), 0));
}

GradientHealth good(std::int64_t step) {
  return {step, 1.0, true};
}

// The weight after its way, in two parts, as it comes to a policy that is told so.
Parameter gathered(Running& run, const Parameter& w) {
  auto& code = dynamic_cast<WeightCode&>(*run.policy);
  code.comes_decoded(w.info);
  const at::Tensor values = w.tensor.view({-1}), magnitude = largest_magnitude(w.tensor),
                   bytes = at::empty(values.sizes(), at::kByte), decoded = at::empty_like(values);
  for (const auto& [begin, elements] : {std::pair{0, 501}, std::pair{501, 24 * 40 - 501}})
    code.encode(values.narrow(0, begin, elements), magnitude, bytes.narrow(0, begin, elements));
  code.decode(bytes, magnitude, decoded);
  return {w.info, decoded.view({24, 40})};
}

// A step of one product.
void step(Running& run, const Operands& of, std::int64_t number = 0, bool finite = true) {
  run->maxima().zero_();
  run->linear(of.x, of.w, {});
  run->judge({number, 1.0, finite});
}

}  // namespace

TEST_CASE("fp8 multiplies inputs and weights in E4M3 and output gradients in E5M2, each by a scale of its own") {
  Running run(FP8_LIBRARY);
  CHECK(run->dtypes({}) == DTypes{at::kBFloat16, at::kFloat, at::kFloat, at::kFloat});
  CHECK_FALSE(run->maxima().defined());
  check_products(
      *run.policy, Operands(), [](const at::Tensor& tensor, int) { return by_tensor(tensor, e4m3); },
      [](const at::Tensor& tensor, int) { return by_tensor(tensor, e5m2); });
}

TEST_CASE("mxfp8 rounds every operand in blocks along the sum") {
  Running run(MXFP8_LIBRARY);
  check_products(*run.policy, Operands(), by_blocks, by_blocks);
}

TEST_CASE("weights that are named, and those of the first and last layers, are multiplied in bf16") {
  for (const char* file : {FP8_LIBRARY, MXFP8_LIBRARY})
    for (const auto& [options, high] :
         {std::pair{OptionTexts{{"keep_bf16", "*.1.dense.*,layers.3.*"}}, std::vector{false, true, false, true}},
          std::pair{OptionTexts{{"keep_bf16_first", "1"}, {"keep_bf16_last", "2"}},
                    std::vector{true, false, true, true}}}) {
      Running run(file, options);
      for (int layer = 0; layer < 4; ++layer) {
        INFO(file << " layer " << layer);
        const Operands of(layer);
        const at::Tensor into = at::zeros({24, 40});
        run->add_weight_gradient(of.dy, of.rows(), of.w.info, into, false);
        const bool is_high = high[static_cast<std::size_t>(layer)];
        CHECK(at::equal(run->linear(of.x, of.w, of.b), at::linear(of.x, of.w.tensor, of.b)) == is_high);
        CHECK(at::equal(run->input_gradient(of.dy, of.w), at::mm(of.dy, of.w.tensor)) == is_high);
        const at::Tensor in_bf16 = at::zeros({24, 40});
        add_product(in_bf16, of.dy.t(), of.rows());
        CHECK(at::equal(into, in_bf16) == is_high);
      }
    }
}

TEST_CASE("a pattern without a weight and an empty set of layers are refused") {
  CHECK_THROWS_WITH(Running(FP8_LIBRARY, {{"keep_bf16", "*.dense.weight,*.up.*"}}),
                    Catch::Contains("\"*.up.*\", which matches no weight") && Catch::Contains("layers.3.dense.weight"));
  CHECK_THROWS_WITH(Running(MXFP8_LIBRARY, {{"keep_bf16_first", "2"}, {"keep_bf16_last", "2"}}),
                    Catch::Contains("leave no layer in 8 bits"));
}

TEST_CASE("saturation at 8 bits does not hide infinite or NaN values") {
  for (const auto& [file, scaling] :
       {std::pair{FP8_LIBRARY, "current"}, std::pair{FP8_LIBRARY, "delayed"}, std::pair{MXFP8_LIBRARY, ""}})
    for (const double value : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      Running run(file, *scaling == '\0' ? OptionTexts{} : OptionTexts{{"scaling", scaling}});
      Operands of;
      if (run->maxima().defined()) step(run, of);
      of.rows()[2][7] = value;
      of.dy[2][7] = value;
      CHECK_FALSE(run->linear(of.x, of.w, {}).view({15, 24})[2].isfinite().any().item<bool>());
      CHECK_FALSE(run->input_gradient(of.dy, of.w)[2].isfinite().any().item<bool>());
      const at::Tensor into = at::zeros({24, 40});
      run->add_weight_gradient(of.dy, of.rows(), of.w.info, into, false);
      CHECK_FALSE(into[7].isfinite().any().item<bool>());
      CHECK_FALSE(into.select(1, 7).isfinite().any().item<bool>());
    }
}

TEST_CASE("a delayed scale is that of the largest magnitude of the last steps, on any rank") {
  Running run(FP8_LIBRARY, {{"scaling", "delayed"}, {"history", "2"}});
  const auto output = [&](const Operands& of) { return run->linear(of.x, of.w, {}); };
  const Operands small(0, 1.0), large(0, 64.0);
  const auto by_scale_of = [](const Operands& of,
                              const Operands& before) {  // both weights have a step of their own too
    const at::Tensor x = rounded(of.rows(), power_of_two(largest_magnitude(before.x), e4m3), e4m3);
    const at::Tensor magnitude = largest_magnitude(before.w.tensor);
    return at::linear(x, rounded(of.w.tensor, power_of_two(magnitude, e4m3), e4m3)).view({3, 5, 24});
  };
  REQUIRE(run->maxima().numel() == 4 * 3);
  CHECK(at::equal(output(large), by_scale_of(large, large)));  // no step came before: its own
  step(run, small);
  CHECK(at::equal(output(large), by_scale_of(large, small)));
  CHECK_FALSE(at::equal(output(large), by_scale_of(large, large)));  // cut off

  run->maxima().zero_();
  output(small);
  CHECK(run->maxima()[0].item<float>() == largest_magnitude(small.x).item<float>());
  CHECK(run->maxima()[1].item<float>() == largest_magnitude(small.w.tensor).item<float>());
  CHECK(run->maxima().narrow(0, 2, 10).eq(0.0F).all().item<bool>());
  run->maxima()[0] = 1000.0F;  // another rank's
  run->judge(good(2));
  Operands of_1000 = small;
  of_1000.x = at::full({15, 40}, 1000.0, at::kBFloat16);
  CHECK(at::equal(output(large), by_scale_of(large, of_1000)));
  for (int again = 0; again < 2; ++again) {  // 1000 is forgotten after two steps
    CHECK(at::equal(output(large), by_scale_of(large, of_1000)));
    step(run, small);
  }
  CHECK(at::equal(output(large), by_scale_of(large, small)));
}

TEST_CASE("a weight sent in its multiplied form is not rounded again") {
  for (const double largest : {16.0, 28.0, 28.2, 29.0, 31.9}) {  // rounding takes 28.2 to 28 and 31.9 to 32
    CAPTURE(largest);
    Running plain(FP8_LIBRARY), run(FP8_LIBRARY, {{"gather", "fp8"}});
    Operands of;
    of.w.tensor[3][5] = largest;
    const Parameter w = gathered(run, of.w);
    CHECK_FALSE(at::equal(w.tensor, of.w.tensor));
    for (Running* one : {&run, &plain}) {  // rounded again it is the same
      CHECK(at::equal((*one)->linear(of.x, w, of.b), plain->linear(of.x, of.w, of.b)));
      CHECK(at::equal((*one)->input_gradient(of.dy, w), plain->input_gradient(of.dy, of.w)));
    }
    CHECK_FALSE(at::equal(run->linear(of.x, of.w, of.b), plain->linear(of.x, of.w, of.b)));
    of.w.tensor[3][5] = std::numeric_limits<double>::infinity();
    CHECK(gathered(run, of.w).tensor.isnan().all().item<bool>());
  }
}

TEST_CASE("only weights that every use rounds are sent in their multiplied form") {
  const auto code = [](Running& run) -> WeightCode& { return dynamic_cast<WeightCode&>(*run.policy); };
  Running run(FP8_LIBRARY, {{"gather", "fp8"}, {"keep_bf16_first", "1"}, {"keep_bf16", "*.2.dense.*"}});
  CHECK(code(run).is_wanted());
  for (int layer = 0; layer < 4; ++layer) CHECK(code(run).travels(weight_of(layer)) == (layer % 2 == 1));
  ParameterInfo bias = weight_of(1), elsewhere = weight_of(1), tied = weight_of(1);
  bias.shape = {24};
  elsewhere.linear_only = false;
  tied.tie = "embedding";
  for (const ParameterInfo& info : {bias, elsewhere, tied}) CHECK_FALSE(code(run).travels(info));
  Running as_it_is(FP8_LIBRARY);
  CHECK_FALSE(code(as_it_is).is_wanted());
  Running blocks(MXFP8_LIBRARY);
  CHECK(dynamic_cast<WeightCode*>(&*blocks.policy) == nullptr);
}

TEST_CASE("with delayed scaling a weight sent in its multiplied form has its own scale") {
  Running run(FP8_LIBRARY, {{"scaling", "delayed"}, {"gather", "fp8"}});
  Operands small(0, 1.0), large(0, 64.0);
  small.w = gathered(run, small.w);
  large.w.tensor.mul_(64.0);
  const Parameter w = gathered(run, large.w);
  step(run, small);
  CHECK(run->maxima()[1].item<float>() == 0.0F);
  const at::Tensor x = rounded(large.rows(), power_of_two(largest_magnitude(small.x), e4m3), e4m3);
  CHECK(at::equal(run->linear(large.x, w, {}), at::linear(x, by_tensor(large.w.tensor, e4m3)).view({3, 5, 24})));
}

TEST_CASE("a step that is skipped or measures nothing leaves delayed scales as they are") {
  Running run(FP8_LIBRARY, {{"scaling", "delayed"}, {"history", "1"}});
  const Operands small(0, 1.0), large(0, 64.0);
  step(run, small, 1);
  const at::Tensor before = run->linear(large.x, large.w, {});
  step(run, large, 2, false);
  CHECK(at::equal(run->linear(large.x, large.w, {}), before));
  run->maxima().zero_();
  run->judge(good(3));
  CHECK(at::equal(run->linear(large.x, large.w, {}), before));
}

TEST_CASE("a resumed run has the scales of the one that saved, though it looks back less far") {
  Running run(FP8_LIBRARY, {{"scaling", "delayed"}, {"history", "3"}});
  const Operands sizes[] = {Operands(0, 8.0), Operands(0, 64.0), Operands(0, 2.0)};
  for (const Operands& of : sizes) step(run, of);
  SavedState saved;
  run->save(saved);
  Running same(FP8_LIBRARY, {{"scaling", "delayed"}, {"history", "3"}});
  Running shorter(FP8_LIBRARY, {{"scaling", "delayed"}, {"history", "1"}});
  for (Running* one : {&same, &shorter}) (*one)->load(saved, (*one)->state_version());
  const Operands huge(0, 1000.0);
  CHECK(at::equal(same->linear(huge.x, huge.w, {}), run->linear(huge.x, huge.w, {})));
  CHECK_FALSE(at::equal(shorter->linear(huge.x, huge.w, {}), run->linear(huge.x, huge.w, {})));
  Running last(FP8_LIBRARY, {{"scaling", "delayed"}, {"history", "1"}});
  step(last, sizes[2]);
  CHECK(at::equal(shorter->linear(huge.x, huge.w, {}), last->linear(huge.x, huge.w, {})));

  SavedState current;
  Running(FP8_LIBRARY)->save(current);
  Running anew(FP8_LIBRARY, {{"scaling", "delayed"}});
  anew->load(current, anew->state_version());  // begins without a history, as a new run
  const fakes::LoadedPlugin<PrecisionPolicy> unattached(PluginLibrary(FP8_LIBRARY), {{"scaling", "delayed"}});
  CHECK_THROWS_WITH(unattached->load(saved, 1), Catch::Contains("magnitudes of other weights"));
}
