// Every operator of the toolbox against plain libtorch and autograd.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <strata/error.hpp>
#include <strata/toolbox/attention.hpp>
#include <strata/toolbox/embedding.hpp>
#include <strata/toolbox/layer_norm.hpp>
#include <strata/toolbox/linear_cross_entropy.hpp>

#include <cmath>
#include <functional>

#include "catch.hpp"

namespace {

using Operator = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

at::Tensor leaf(const at::Tensor& values) {
  return values.detach().clone().set_requires_grad(true);
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>() /
         std::max(1.0, b.to(at::kDouble).abs().max().item<double>());
}

// The result and the gradients of `inputs` by each operator, relative to the largest value.
double largest_difference(const Operator& fast, const Operator& plain, const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> a, b;
  for (const at::Tensor& input : inputs) {
    a.push_back(leaf(input));
    b.push_back(leaf(input));
  }
  const at::Tensor x = fast(a), y = plain(b);
  const at::Tensor seed = at::randn(y.sizes(), y.options());
  torch::autograd::backward({x}, {seed});
  torch::autograd::backward({y}, {seed});
  double worst = difference(x, y);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    INFO("gradient of input " << i);
    REQUIRE(a[i].grad().defined());
    worst = std::max(worst, difference(a[i].grad(), b[i].grad()));
  }
  return worst;
}

// Gradients of a bf16 weight land in a preset fp32 .grad, on top of what is there.
void check_wide_gradient(const Operator& fast, const Operator& plain, const at::Tensor& x, const at::Tensor& weight,
                         double bound) {
  at::Tensor weight_16 = leaf(weight.to(at::kBFloat16)), weight_32 = leaf(weight_16.to(at::kFloat));
  at::Tensor x_16 = leaf(x.is_floating_point() ? x.to(at::kBFloat16) : x.to(at::kFloat));
  weight_16.mutable_grad() = at::ones(weight.sizes(), at::kFloat);
  const at::Tensor buffer = weight_16.grad();
  const at::Tensor y = fast({x_16, weight_16});
  torch::autograd::backward({y}, {at::ones_like(y)});
  const at::Tensor reference = plain({leaf(x_16.to(at::kFloat)), weight_32});
  torch::autograd::backward({reference}, {at::ones_like(reference)});
  CHECK(weight_16.grad().is_same(buffer));
  CHECK(difference(buffer - 1.0, weight_32.grad()) < bound);
}

}  // namespace

TEST_CASE("layer_norm equals libtorch's") {
  const Operator fast = [](const auto& t) { return strata::layer_norm(t[0], t[1], t[2], 1e-5); };
  const Operator plain = [](const auto& t) { return at::layer_norm(t[0], {t[0].size(-1)}, t[1], t[2], 1e-5); };
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    CHECK(largest_difference(
              fast, plain, {at::randn({2, 5, 33}, dtype) * 3, at::randn({33}, dtype), at::randn({33}, dtype)}) < 1e-6);
  }
  // bf16 in and out, statistics in fp32
  const at::Tensor x = (at::randn({64, 96}) * 3 + 40).to(at::kBFloat16), w = at::randn({96}).to(at::kBFloat16),
                   b = at::randn({96}).to(at::kBFloat16);
  const at::Tensor exact = at::layer_norm(x.to(at::kDouble), {96}, w.to(at::kDouble), b.to(at::kDouble), 1e-5);
  CHECK(difference(strata::layer_norm(x, w, b, 1e-5), exact) < 4e-3);
  check_wide_gradient([&](const auto& t) { return strata::layer_norm(t[0], t[1], b, 1e-5); },
                      [&](const auto& t) { return at::layer_norm(t[0], {96}, t[1], b.to(at::kFloat), 1e-5); }, x, w,
                      3e-2);
}

TEST_CASE("layer_norm sums gradients of many rows in fp32, however many threads there are") {
  const std::int64_t rows = 4099, n = 40;
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf, at::kFloat}) {
    const at::Tensor x = at::randn({rows, n}).to(dtype), dy = at::randn({rows, n}).to(dtype);
    std::vector<at::Tensor> found;
    for (const int threads : {1, 3}) {
      at::set_num_threads(threads);
      const at::Tensor input = leaf(x), weight = leaf(at::ones({n}).to(dtype)), bias = leaf(at::zeros({n}).to(dtype));
      weight.mutable_grad() = at::zeros({n});
      bias.mutable_grad() = at::zeros({n});
      torch::autograd::backward({strata::layer_norm(input, weight, bias, 1e-5)}, {dy});
      for (const at::Tensor& one : {input, weight, bias}) found.push_back(one.grad());
    }
    at::set_num_threads(1);
    const at::Tensor exact_x = leaf(x.to(at::kDouble)), weight = leaf(at::ones({n}, at::kDouble)),
                     bias = leaf(at::zeros({n}, at::kDouble));
    torch::autograd::backward({at::layer_norm(exact_x, {n}, weight, bias, 1e-5)}, {dy.to(at::kDouble)});
    INFO(dtype);
    for (std::size_t i = 0; i < 3; ++i) CHECK(at::equal(found[i], found[i + 3]));
    CHECK(difference(found[1], weight.grad()) < 1e-6);
    CHECK(difference(found[2], bias.grad()) < 1e-6);
    CHECK(difference(found[0], exact_x.grad()) < (dtype == at::kFloat ? 1e-6 : 4e-3));
  }
}

TEST_CASE("embedding_rows equals libtorch's, repeated and absent tokens included") {
  const at::Tensor tokens = at::randint(0, 11, {3, 17}, at::kLong);  // of 13: two never appear
  const Operator fast = [&](const auto& t) { return strata::embedding_rows(t[0], tokens); };
  const Operator plain = [&](const auto& t) { return at::embedding(t[0], tokens); };
  CHECK(largest_difference(fast, plain, {at::randn({13, 7})}) < 1e-6);
  CHECK(strata::embedding_rows(at::randn({13, 7}), tokens).sizes() == at::IntArrayRef({3, 17, 7}));
  check_wide_gradient([&](const auto& t) { return strata::embedding_rows(t[1], tokens); },
                      [&](const auto& t) { return at::embedding(t[1], tokens); }, tokens, at::randn({13, 7}), 1e-6);
}

TEST_CASE("a token outside the vocabulary is named") {
  const at::Tensor weight = at::randn({13, 7});
  CHECK_THROWS_WITH(strata::embedding_rows(weight, at::tensor({1, 13}, at::kLong)),
                    Catch::Contains("token 13") && Catch::Contains("vocabulary of 13"));
  CHECK_THROWS_AS(strata::embedding_rows(weight, at::tensor({-1}, at::kLong)), strata::UserError);
  CHECK_THROWS_WITH(strata::linear_cross_entropy(at::randn({2, 7}), weight, at::tensor({1, 99}, at::kLong)),
                    Catch::Contains("target 99"));
  CHECK_THROWS_AS(strata::linear_cross_entropy(at::randn({1, 7}), weight, at::tensor({-1}, at::kLong)),
                  strata::UserError);
}

TEST_CASE("split_heads equals unbind and rotary_embedding") {
  const std::int64_t batch = 2, positions = 9, heads = 3, size = 8;
  for (const std::int64_t dimensions : {0, 2, 8}) {
    strata::RotaryTable table(dimensions, 10000.0);
    const Operator fast = [&](const auto& t) {
      const strata::Heads parts = strata::split_heads(t[0] * 1.0, batch, heads, table);
      return at::stack({parts.query, parts.key * 2, parts.value * 3});
    };
    const Operator plain = [&](const auto& t) {
      const auto parts = t[0].view({batch, positions, heads, 3, size}).unbind(3);
      return at::stack({strata::rotary_embedding(parts[0], table), strata::rotary_embedding(parts[1], table) * 2,
                        parts[2] * 3})
          .transpose(2, 3);
    };
    CHECK(largest_difference(fast, plain, {at::randn({batch * positions, heads * 3 * size})}) < 1e-6);
    CHECK(largest_difference(fast, plain, {at::randn({batch * positions, heads * 3 * size}, at::kDouble)}) < 1e-14);
    CHECK(largest_difference(fast, plain, {at::randn({batch * positions, heads * 3 * size}).to(at::kBFloat16)}) < 1e-2);
  }
}

TEST_CASE("rotary_embedding rotates pairs by position times frequency") {
  strata::RotaryTable table(4, 100.0);  // frequencies 1 and 0.1
  const at::Tensor x = at::ones({1, 3, 1, 6});
  const at::Tensor y = strata::rotary_embedding(x, table).view({3, 6});
  for (int position = 0; position < 3; ++position) {
    for (int i = 0; i < 2; ++i) {
      const double angle = position * (i == 0 ? 1.0 : 0.1);
      CHECK(y[position][i].item<double>() == Approx(std::cos(angle) - std::sin(angle)).margin(1e-6));
      CHECK(y[position][i + 2].item<double>() == Approx(std::cos(angle) + std::sin(angle)).margin(1e-6));
    }
    CHECK(y[position][5].item<double>() == 1.0);
  }
  CHECK_THROWS_AS(strata::RotaryTable(3, 100.0), strata::Bug);
}

TEST_CASE("a tensor that autograd saved and split_heads overwrote is reported") {
  strata::RotaryTable table(2, 10000.0);
  const at::Tensor qkv = at::exp(leaf(at::randn({4, 24})));  // exp saves its result
  const strata::Heads parts = strata::split_heads(qkv, 1, 2, table);
  CHECK_THROWS_WITH(torch::autograd::backward({parts.query.sum()}, {}),
                    Catch::Contains("modified by an inplace operation"));
}

TEST_CASE("attention equals softmax over the earlier positions") {
  const Operator fast = [](const auto& t) { return strata::attention(t[0], t[1], t[2]); };
  const Operator plain = [](const auto& t) {
    const at::Tensor scores = at::matmul(t[0], t[1].transpose(2, 3)) / std::sqrt(static_cast<double>(t[0].size(3)));
    const at::Tensor later = at::ones({t[0].size(2), t[0].size(2)}, at::kBool).triu(1);
    return at::matmul(at::softmax(scores.masked_fill(later, -INFINITY), -1), t[2]);
  };
  for (const std::int64_t positions : {1, 7, 65}) {
    const auto heads = [&] { return at::randn({2, 3, positions, 8}); };
    CHECK(largest_difference(fast, plain, {heads(), heads(), heads()}) < 2e-6);
  }
}

TEST_CASE("linear_cross_entropy equals the reference for every chunk") {
  at::manual_seed(5);
  const at::Tensor targets = at::randint(0, 67, {23}, at::kLong);
  targets[3] = targets[22] = -100;
  const Operator plain = [&](const auto& t) {
    return strata::linear_cross_entropy_reference(t[0], t[1], targets).loss;
  };
  for (const std::int64_t width : {5, 40}) {  // keeps the weight's gradient; keeps the logits'
    for (const std::int64_t chunk : {0, 1, 4, 23, 100}) {
      const Operator fast = [&](const auto& t) {
        return strata::linear_cross_entropy(t[0], t[1], targets, {chunk}).loss;
      };
      CAPTURE(width, chunk);
      CHECK(largest_difference(fast, plain, {at::randn({23, width}) * 3, at::randn({67, width})}) < 2e-6);
      CHECK(largest_difference(fast, plain,
                               {at::randn({23, width}, at::kDouble), at::randn({67, width}, at::kDouble)}) < 1e-13);
      check_wide_gradient(fast, plain, at::randn({23, width}), at::randn({67, width}), 2e-2);
    }
  }
}

TEST_CASE("linear_cross_entropy keeps small fp16 gradients until the loss seed applies") {
  // Every wrong token's logit is 17 below the right one's: a probability of 4e-8, which fp16 rounds by half of itself.
  const std::int64_t vocabulary = 61;
  const double seed = 65536.0 / 8.0;
  at::Tensor table = at::full({vocabulary, 64}, -17.0 / 64);
  table[5].zero_();
  for (const std::int64_t rows : {3, 130}) {  // keeps the logits' gradient; keeps the weight's
    const at::Tensor targets = at::full({rows}, 5, at::kLong);
    const auto weight_gradient = [&](at::ScalarType dtype, double given, double used, auto&& operation) {
      const at::Tensor x = leaf(at::ones({rows, 64}).to(dtype)), weight = leaf(table.to(dtype));
      const at::Tensor loss = operation(x, weight, given);
      torch::autograd::backward({loss}, {at::full({}, used, loss.options().requires_grad(false))});
      return weight.grad().to(at::kDouble).narrow(0, 6, vocabulary - 6);  // of wrong tokens
    };
    const auto fast = [&](const at::Tensor& x, const at::Tensor& weight, double given) {
      return strata::linear_cross_entropy(x, weight, targets, {2}, at::full({}, given, at::kFloat)).loss;
    };
    const auto plain = [&](const at::Tensor& x, const at::Tensor& weight, double) {
      return strata::linear_cross_entropy_reference(x, weight, targets).loss;
    };
    const at::Tensor truth = weight_gradient(at::kDouble, 1.0, seed, plain);
    const auto error = [&](const at::Tensor& found) { return ((found - truth) / truth).abs().max().item<double>(); };
    CAPTURE(rows);
    CHECK(error(weight_gradient(at::kHalf, seed, seed, fast)) < 5e-3);
    CHECK(error(weight_gradient(at::kHalf, 1.0, seed, fast)) > 0.2);
    CHECK(error(2 * weight_gradient(at::kHalf, seed, seed / 2, fast)) < 5e-3);  // another seed than announced
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kDouble})
      CHECK(at::equal(weight_gradient(dtype, seed, seed, fast), weight_gradient(dtype, 1.0, seed, fast)));
  }
}

TEST_CASE("linear_cross_entropy at the edges") {
  using strata::linear_cross_entropy;
  const at::Tensor weight = at::randn({67, 5});
  CHECK(linear_cross_entropy(at::randn({2, 5}), weight, at::tensor({-100, -100}, at::kLong)).loss.item<float>() ==
        0.0F);
  CHECK(linear_cross_entropy(at::randn({0, 5}), weight, at::empty({0}, at::kLong)).loss.item<float>() == 0.0F);
  // Far apart logits: no overflow, and a row whose target is hopeless costs its distance.
  const at::Tensor loss = linear_cross_entropy(at::full({1, 1}, 1.0), at::tensor({500.0F, -500.0F}).view({2, 1}),
                                               at::tensor({1}, at::kLong))
                              .loss;
  CHECK(loss.item<float>() == Approx(1000.0F));
  // What is not finite stays so.
  CHECK(std::isnan(linear_cross_entropy(at::full({1, 5}, NAN), weight, at::tensor({1}, at::kLong)).loss.item<float>()));
  // Only one of the two wants gradients.
  const at::Tensor x = leaf(at::randn({4, 5})), targets = at::tensor({1, 2, 3, 4}, at::kLong);
  torch::autograd::backward({linear_cross_entropy(x, weight, targets).loss}, {});
  CHECK(x.grad().defined());
  const at::Tensor frozen = at::randn({4, 5}), trained = leaf(weight);
  torch::autograd::backward({linear_cross_entropy(frozen, trained, targets).loss}, {});
  CHECK(trained.grad().defined());
  CHECK_THROWS_AS(linear_cross_entropy(frozen, at::randn({67, 6}), targets), strata::Bug);
}
