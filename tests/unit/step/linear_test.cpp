#include "stage/linear.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <strata/error.hpp>

#include <limits>

#include "catch.hpp"

using namespace strata;
using stage::Linear;
using stage::WeightGradient;

namespace {

class Plain final : public PrecisionPolicy {
 public:
  DTypes dtypes(const ParameterInfo&) const override { return {}; }
  at::ScalarType activation() const override { return at::kFloat; }
  double loss_scale() const override { return 1.0; }
  Verdict judge(const GradientHealth&) override { return Verdict::Apply; }
};

Parameter parameter(const std::string& name, std::vector<std::int64_t> shape, bool linear_only) {
  Parameter made;
  made.info.name = name;
  made.info.shape = std::move(shape);
  made.info.linear_only = linear_only;
  made.tensor = at::randn(made.info.shape).set_requires_grad(true);
  return made;
}

// y = x + w2 gelu(w1 x + b1) + b2, as a layer computes it, and by libtorch's autograd.
struct TwoProducts {
  explicit TwoProducts(bool linear_only)
      : w1(parameter("w1", {7, 5}, linear_only)),
        b1(parameter("b1", {7}, linear_only)),
        w2(parameter("w2", {5, 7}, linear_only)),
        b2(parameter("b2", {5}, linear_only)) {}
  std::vector<Parameter*> all() { return {&w1, &b1, &w2, &b2}; }
  at::Tensor forward(Linear& linear, const at::Tensor& x) const {
    return x + linear.linear(at::gelu(linear.linear(x, w1, &b1)), w2, &b2);
  }
  at::Tensor expected(const at::Tensor& x) const {
    return x + at::linear(at::gelu(at::linear(x, w1.tensor, b1.tensor)), w2.tensor, b2.tensor);
  }
  std::vector<at::Tensor> leaves(const at::Tensor& x) {
    std::vector<at::Tensor> list{x};
    for (const Parameter* one : all()) list.push_back(one->tensor);
    return list;
  }
  Parameter w1, b1, w2, b2;
};

void check_close(const at::Tensor& found, const at::Tensor& expected) {
  REQUIRE(found.defined());
  CHECK((found - expected).abs().max().item<float>() <= 1e-5F * (1.0F + expected.abs().max().item<float>()));
}

}  // namespace

TEST_CASE("gradients are those of libtorch, added to the buffers that were lent") {
  Plain policy;
  Linear linear(policy, "precision/plain", 0);
  TwoProducts layer(false);
  const at::Tensor x = at::randn({2, 3, 5}).set_requires_grad(true), dy = at::randn({2, 3, 5});
  const auto expected = torch::autograd::grad({layer.expected(x)}, layer.leaves(x), {dy});
  for (Parameter* one : layer.all()) one->tensor.mutable_grad() = at::ones(one->info.shape);
  const at::Tensor y = layer.forward(linear, x);
  check_close(y, layer.expected(x));
  torch::autograd::backward({y}, {dy}, false, false, layer.leaves(x));
  check_close(x.grad(), expected[0]);
  for (std::size_t i = 0; i < 4; ++i) check_close(layer.all()[i]->tensor.grad(), expected[i + 1] + 1.0);
}

TEST_CASE("a buffer that holds nothing is written by the first product, and cleared where there is none") {
  Plain policy;
  Linear linear(policy, "precision/plain", 0);
  FlatParameterInfo info{.name = "flat"};
  for (const bool linear_only : {true, true, false, true}) {  // weight, bias, one that autograd adds to, unused
    ParameterSpan span;
    span.info.name = std::to_string(info.parameters.size());
    span.info.shape = info.parameters.empty() ? std::vector<std::int64_t>{3, 2} : std::vector<std::int64_t>{3};
    span.info.linear_only = linear_only;
    span.offset = info.elements;
    info.elements += span.info.elements();
    info.parameters.push_back(span);
  }
  FlatParameter flat(info, at::kCPU);
  flat.bind(at::randn({info.elements}));
  const auto handle = [&](std::size_t i) { return Parameter{info.parameters[i].info, flat.parameters()[i]}; };
  const Parameter weight = handle(0), bias = handle(1);
  const std::vector<at::Tensor> leaves(flat.parameters().begin(), flat.parameters().begin() + 3);
  const at::Tensor x = at::randn({4, 2});
  const auto expected =
      torch::autograd::grad({at::linear(x, leaves[0], leaves[1]).mul(leaves[2])}, leaves, {at::ones({4, 3})});

  const at::Tensor buffer = at::full({info.elements}, std::numeric_limits<float>::quiet_NaN());
  flat.set_gradient_buffer(buffer);
  linear.begin_gradient(flat);
  for (int micro_batch = 1; micro_batch <= 2; ++micro_batch) {
    CHECK(linear.is_unwritten(weight) == (micro_batch == 1));
    torch::autograd::backward({linear.linear(x, weight, &bias).mul(leaves[2])}, {at::ones({4, 3})}, false, false,
                              leaves);
  }
  CHECK(linear.is_unwritten(handle(3)));
  linear.end_gradient(flat);
  CHECK_FALSE(linear.is_unwritten(handle(3)));
  for (std::size_t i = 0; i < 3; ++i) check_close(leaves[i].grad(), expected[i] * 2.0);
  CHECK(buffer.narrow(0, info.parameters[3].offset, 3).eq(0.0).all().item<bool>());
  CHECK(buffer.isfinite().all().item<bool>());
}

TEST_CASE("a split backward leaves the linear part, which add() computes without weights") {
  Plain policy;
  Linear linear(policy, "precision/plain", 0);
  TwoProducts layer(true);
  layer.b2.info.linear_only = false;  // its gradient comes with the input's
  const at::Tensor x = at::randn({4, 5}).set_requires_grad(true), dy = at::randn({4, 5});
  const auto expected = torch::autograd::grad({layer.expected(x)}, layer.leaves(x), {dy});
  layer.b2.tensor.mutable_grad() = at::zeros({5});
  std::vector<WeightGradient> left;
  linear.leave_in(&left);
  torch::autograd::backward({layer.forward(linear, x)}, {dy}, false, false, layer.leaves(x));
  linear.leave_in(nullptr);
  check_close(x.grad(), expected[0]);
  check_close(layer.b2.tensor.grad(), expected[4]);
  REQUIRE(left.size() == 2);
  for (const Parameter* one : {&layer.w1, &layer.b1, &layer.w2}) CHECK_FALSE(one->tensor.grad().defined());
  CHECK_THROWS_AS(linear.add(left[0]), Bug);  // no buffer is lent yet
  for (Parameter* one : {&layer.w1, &layer.b1, &layer.w2}) one->tensor.mutable_grad() = at::zeros(one->info.shape);
  for (const WeightGradient& one : left) linear.add(one);
  check_close(layer.w1.tensor.grad(), expected[1]);
  check_close(layer.b1.tensor.grad(), expected[2]);
  check_close(layer.w2.tensor.grad(), expected[3]);
}

TEST_CASE("frozen and tied parameters leave nothing") {
  Plain policy;
  Linear linear(policy, "precision/plain", 0);
  TwoProducts layer(true);
  layer.w1.info.trainable = false;
  layer.w1.tensor.set_requires_grad(false);
  layer.w2.info.tie = "tied";
  layer.w2.tensor.mutable_grad() = at::zeros({5, 7});
  std::vector<WeightGradient> left;
  linear.leave_in(&left);
  const at::Tensor x = at::randn({4, 5}).set_requires_grad(true);
  torch::autograd::backward({layer.forward(linear, x)}, {at::ones({4, 5})}, false, false,
                            {x, layer.b1.tensor, layer.w2.tensor, layer.b2.tensor});
  REQUIRE(left.size() == 2);
  CHECK(left[0].weight == nullptr);
  CHECK(left[0].bias == &layer.b2);
  CHECK(left[1].weight == nullptr);
  CHECK(left[1].bias == &layer.b1);
  CHECK(layer.w2.tensor.grad().abs().max().item<float>() > 0.0F);
}
