// The terms beside the cross entropy, z-loss and largest logit, against plain libtorch and autograd.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <strata/error.hpp>
#include <strata/toolbox/linear_cross_entropy.hpp>

#include <cmath>

#include "catch.hpp"

using strata::LossTerms;
using strata::TokenLoss;

namespace {

// A problem of odd sizes, in fp64: two rows have no target.
struct LossProblem {
  explicit LossProblem(std::int64_t width, std::int64_t rows = 23)
      : x(at::randn({rows, width}, at::kDouble) * 3),
        weight(at::randn({67, width}, at::kDouble)),
        targets(at::randint(0, 67, {rows}, at::kLong)) {
    targets[3] = targets[rows - 1] = strata::ignored_target;
  }
  at::Tensor x, weight, targets;
};

struct LossAndGradients {
  TokenLoss loss;
  at::Tensor x, weight;
};

LossAndGradients with_gradients(const LossProblem& problem, at::ScalarType dtype, const LossTerms& terms,
                                bool reference, double seed = 1.0) {
  const auto leaf = [&](const at::Tensor& values) { return values.to(dtype).detach().clone().set_requires_grad(true); };
  const at::Tensor x = leaf(problem.x), weight = leaf(problem.weight);
  const at::Tensor given = at::full({}, seed, at::kFloat);
  const TokenLoss loss = reference ? strata::linear_cross_entropy_reference(x, weight, problem.targets, terms)
                                   : strata::linear_cross_entropy(x, weight, problem.targets, terms, given);
  std::vector<at::Tensor> losses{loss.loss}, seeds;
  if (loss.auxiliary_loss.defined()) losses.push_back(loss.auxiliary_loss);
  for (const at::Tensor& one : losses) seeds.push_back(given.to(one.scalar_type()));
  torch::autograd::backward(losses, seeds);
  return {loss, x.grad(), weight.grad()};
}

// The largest difference relative to the largest value.
double apart(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor wide = b.to(at::kDouble);
  return (a.to(at::kDouble) - wide).abs().max().item<double>() / wide.abs().max().item<double>();
}

// Of values: in half precision, rounding moves each logit by half a unit in the last place, and a square by a whole
// one.
struct DtypeBound {
  at::ScalarType dtype;
  double of_values, of_gradients;
};

}  // namespace

TEST_CASE("z-loss and largest logit equal the reference for every chunk and dtype") {
  at::manual_seed(5);
  const DtypeBound bound = GENERATE(DtypeBound{at::kFloat, 2e-6, 2e-6}, DtypeBound{at::kDouble, 1e-13, 1e-13},
                                    DtypeBound{at::kBFloat16, 4e-3, 2e-2}, DtypeBound{at::kHalf, 5e-4, 3e-3});
  const std::int64_t width = GENERATE(5, 40);  // keeps the weight's gradient; keeps the logits'
  const std::int64_t chunk = GENERATE(0, 1, 4, 23, 100);
  CAPTURE(bound.dtype, width, chunk);
  LossProblem problem(width);
  problem.x = problem.x.to(bound.dtype).to(at::kDouble);
  problem.weight = problem.weight.to(bound.dtype).to(at::kDouble);
  const LossTerms terms{chunk, 0.2, true};
  const double seed = bound.dtype == at::kHalf ? 64.0 : 1.0;
  const LossAndGradients found = with_gradients(problem, bound.dtype, terms, false, seed),
                         wanted = with_gradients(problem, at::kDouble, terms, true, seed);
  CHECK(apart(found.loss.loss, wanted.loss.loss) < bound.of_values);
  CHECK(apart(found.loss.auxiliary_loss, wanted.loss.auxiliary_loss) < bound.of_values);
  CHECK(apart(found.loss.largest_logit, wanted.loss.largest_logit) < bound.of_values);
  CHECK(apart(found.x, wanted.x) < bound.of_gradients);
  CHECK(apart(found.weight, wanted.weight) < bound.of_gradients);
  CHECK_FALSE(found.loss.largest_logit.requires_grad());
  const c10::NoGradGuard no_grad;
  const TokenLoss alone =
      strata::linear_cross_entropy(problem.x.to(bound.dtype), problem.weight.to(bound.dtype), problem.targets, terms);
  CHECK(at::equal(alone.auxiliary_loss, found.loss.auxiliary_loss));
  CHECK(at::equal(alone.largest_logit, found.loss.largest_logit));
}

TEST_CASE("a gradient without its z-loss term exceeds the bound") {
  at::manual_seed(5);
  const LossProblem problem(5);
  const LossAndGradients with = with_gradients(problem, at::kFloat, {0, 0.2, true}, false),
                         without = with_gradients(problem, at::kFloat, {0, 0.0, true}, false);
  CHECK(apart(without.x, with.x) > 2e-2);
  CHECK(apart(without.weight, with.weight) > 2e-2);
}

TEST_CASE("a requested largest logit changes no bit of loss and gradients") {
  at::manual_seed(5);
  const at::ScalarType dtype = GENERATE(at::kFloat, at::kDouble, at::kBFloat16, at::kHalf);
  const LossProblem problem(GENERATE(5, 40));
  const LossAndGradients plain = with_gradients(problem, dtype, {}, false),
                         more = with_gradients(problem, dtype, {0, 0.0, true}, false);
  CHECK(at::equal(plain.loss.loss, more.loss.loss));
  CHECK(at::equal(plain.x, more.x));
  CHECK(at::equal(plain.weight, more.weight));
  CHECK_FALSE(plain.loss.auxiliary_loss.defined());
  CHECK_FALSE(plain.loss.largest_logit.defined());
}

TEST_CASE("rows without a target add nothing to z-loss, largest logit and gradients") {
  const at::ScalarType dtype = GENERATE(at::kFloat, at::kDouble, at::kBFloat16);
  LossProblem problem(5);
  problem.targets.fill_(strata::ignored_target);
  const LossAndGradients found = with_gradients(problem, dtype, {4, 0.2, true}, false);
  CHECK(found.loss.auxiliary_loss.item<double>() == 0.0);
  CHECK(found.loss.largest_logit.item<double>() == -INFINITY);
  CHECK(found.x.eq(0).all().item<bool>());
  CHECK(found.weight.eq(0).all().item<bool>());
}

TEST_CASE("loss and auxiliary loss with different gradients are refused") {
  const LossProblem problem(5);
  const at::Tensor x = problem.x.clone().set_requires_grad(true);
  const TokenLoss loss = strata::linear_cross_entropy(x, problem.weight, problem.targets, {0, 0.2, false});
  CHECK_THROWS_WITH(torch::autograd::backward({loss.loss}, {}), Catch::Contains("have the same gradient"));
}

TEST_CASE("requested terms are tensors on meta too") {
  const at::TensorOptions meta = at::TensorOptions().device(at::kMeta);
  const TokenLoss loss = strata::linear_cross_entropy(at::empty({4, 5}, meta), at::empty({67, 5}, meta),
                                                      at::empty({4}, meta.dtype(at::kLong)), {0, 0.2, true});
  for (const at::Tensor& one : {loss.loss, loss.auxiliary_loss, loss.largest_logit}) {
    REQUIRE(one.defined());
    CHECK(one.is_meta());
    CHECK(one.dim() == 0);
  }
}
