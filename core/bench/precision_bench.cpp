// A precision policy's matmul beside libtorch's in the format that its activations have.
#include <ATen/ops/linear.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "bench/kinds.hpp"

namespace strata::bench {

namespace {

constexpr std::int64_t tokens = 512;

// Values of a trained layer's size, which no format rounds to 0 or infinity.
at::Tensor values(std::vector<std::int64_t> shape, at::ScalarType dtype) {
  return at::rand(shape).sub(0.5).mul(0.1).to(dtype);
}

}  // namespace

std::vector<Row> bench_precision(PrecisionPolicy& policy, const Sizes& sizes, const Turns& turns) {
  std::vector<Row> rows;
  for (const std::int64_t hidden : sizes) {
    ParameterInfo info;
    info.name = "bench.weight";
    info.shape = {hidden, hidden};
    const at::ScalarType activation = policy.activation(), parameter = policy.dtypes(info).parameter;
    const at::Tensor x = values({tokens, hidden}, activation), b = values({hidden}, parameter);
    const at::Tensor w = values({hidden, hidden}, parameter);
    const at::Tensor plain_w = w.to(activation, false, true), plain_b = b.to(activation, false, true);
    const at::Tensor seed = at::ones_like(x);
    for (const bool backward : {false, true}) {
      for (const at::Tensor& tensor : {x, w, b, plain_w, plain_b}) tensor.set_requires_grad(backward);
      const auto run = [&](const at::Tensor& y) {
        if (backward) torch::autograd::backward({y}, {seed});
      };
      Row row;
      row.name = backward ? "linear, forward and backward" : "linear, forward";
      row.size = std::to_string(tokens) + " x " + std::to_string(hidden) + " x " + std::to_string(hidden);
      row.floor = std::string("at::linear in ") + c10::toString(activation);
      row.work = (backward ? 6.0 : 2.0) * static_cast<double>(tokens * hidden * hidden);
      row.work_unit = "FLOP";
      rows.push_back(turns.time(
          std::move(row), [&] { run(policy.linear(x, w, b)); }, [&] { run(at::linear(x, plain_w, plain_b)); }));
    }
  }
  return rows;
}

}  // namespace strata::bench
