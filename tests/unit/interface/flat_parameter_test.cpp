#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <strata/error.hpp>
#include <strata/flat_parameter.hpp>

#include "catch.hpp"

using namespace strata;

namespace {

FlatParameterInfo two_parameters(at::ScalarType dtype = at::kFloat) {
  FlatParameterInfo info;
  info.name = "layer 0";
  info.elements = 7;
  info.dtypes.parameter = dtype;
  info.parameters = {{{"a", {2, 2}, {}, true, ""}, 0}, {{"b", {3}, {}, true, ""}, 4}};
  return info;
}

at::Tensor whole_gradient(FlatParameter& flat, const at::Tensor& memory) {
  flat.bind(memory);
  const at::Tensor loss = flat.parameters()[0].mul(2.0).sum().add(flat.parameters()[1].mul(flat.parameters()[1]).sum());
  torch::autograd::backward({loss}, {}, false, false, {flat.parameters()[0], flat.parameters()[1]});
  return loss;
}

}  // namespace

TEST_CASE("parameters are views into the flat parameter's buffer") {
  FlatParameter flat(two_parameters(), at::kCPU);
  CHECK(flat.residence() == Residence::Released);
  const at::Tensor memory = at::arange(7, at::kFloat);
  flat.bind(memory);
  CHECK(flat.parameters()[0].sizes() == at::IntArrayRef({2, 2}));
  CHECK(at::equal(flat.parameters()[1].detach(), memory.narrow(0, 4, 3)));
  memory.fill_(5.0);
  CHECK(flat.parameters()[0].detach().select(0, 0).select(0, 0).item<float>() == 5.0F);
  flat.unbind();
  CHECK_THROWS(flat.parameters()[1].narrow(0, 0, 1).sum());  // no memory: it throws instead of reading what was there
  flat.bind(at::ones({9}));                                  // longer memory is fine: shards are padded
  CHECK(flat.parameters()[1].detach().sum().item<float>() == 3.0F);
}

TEST_CASE("tensors saved by autograd read the memory of a later gather") {
  FlatParameter flat(two_parameters(), at::kCPU);
  const at::Tensor first = at::arange(7, at::kFloat);
  flat.bind(first);
  flat.set_gradient_buffer(at::zeros({7}));
  const at::Tensor loss = flat.parameters()[1].mul(flat.parameters()[1]).sum();
  flat.unbind();
  const at::Tensor second = at::arange(7, at::kFloat);  // equal values elsewhere, as a second gather gives
  first.fill_(-100.0);
  flat.bind(second);
  torch::autograd::backward({loss}, {}, false, false, {flat.parameters()[1]});
  CHECK(at::equal(flat.parameters()[1].grad(), at::arange(4, 7, at::kFloat).mul(2.0)));
}

TEST_CASE("gradients accumulate into the buffer, 16-bit parameters into an fp32 one") {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    FlatParameter flat(two_parameters(dtype), at::kCPU);
    const at::Tensor buffer = at::zeros({7});
    const at::Tensor memory = at::arange(7, at::kFloat).to(dtype);
    flat.set_gradient_buffer(buffer);
    whole_gradient(flat, memory);
    whole_gradient(flat, memory);
    CHECK(buffer.narrow(0, 0, 4).eq(4.0).all().item<bool>());
    CHECK(at::equal(buffer.narrow(0, 4, 3), at::arange(4, 7, at::kFloat).mul(4.0)));
    flat.set_gradient_buffer(at::Tensor());
    CHECK_FALSE(flat.parameters()[0].grad().defined());
  }
}

TEST_CASE("wrong orders and wrong memory are bugs, by name") {
  FlatParameter flat(two_parameters(), at::kCPU);
  CHECK_THROWS_AS(flat.unbind(), Bug);
  CHECK_THROWS_AS(flat.bind(at::zeros({6})), Bug);
  CHECK_THROWS_AS(flat.bind(at::zeros({7}, at::kDouble)), Bug);
  CHECK_THROWS_AS(flat.set_gradient_buffer(at::zeros({6})), Bug);
  flat.gathering();
  CHECK_THROWS_AS(flat.gathering(), Bug);
  flat.bind(at::zeros({7}));
  CHECK_THROWS_AS(flat.gathering(), Bug);
  CHECK_THROWS_AS(flat.move_gradient(GradientState::Complete), Bug);
  for (const GradientState state : {GradientState::Lent, GradientState::Partial, GradientState::Lent,
                                    GradientState::Reducing, GradientState::Complete, GradientState::Empty})
    flat.move_gradient(state);
}

TEST_CASE("on meta the same calls take no memory") {
  FlatParameter flat(two_parameters(), at::kMeta);
  flat.bind(at::zeros({7}, at::TensorOptions().device(at::kMeta)));
  CHECK(flat.parameters()[0].is_meta());
  flat.unbind();
  CHECK(flat.residence() == Residence::Released);
}

TEST_CASE("a frozen flat parameter has no gradient") {
  FlatParameterInfo info = two_parameters();
  info.trainable = false;
  FlatParameter flat(info, at::kCPU);
  CHECK_FALSE(flat.parameters()[0].requires_grad());
  CHECK_THROWS_AS(flat.set_gradient_buffer(at::zeros({7})), Bug);
}
