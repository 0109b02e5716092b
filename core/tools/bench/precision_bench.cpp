// Times a precision policy's matmul. Floor: libtorch's in the policy's activation format, or in fp32 if that is faster.
#include <ATen/ops/linear.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <set>

#include "tools/bench/kinds.hpp"

#include <strata/format.hpp>

namespace strata::bench {

namespace {

constexpr std::int64_t tokens = 512;

// The tensors of one at::linear.
struct Plain {
  at::Tensor x, w, b;
};

// Values of the magnitude in a trained layer, which no format rounds to 0 or infinity.
at::Tensor values(std::vector<std::int64_t> shape, at::ScalarType dtype) {
  return at::rand(shape).sub(0.5).mul(0.1).to(dtype);
}

}  // namespace

std::vector<Row> bench_precision(PrecisionPolicy& policy, const Sizes& sizes, const InterleavedTimer& timer) {
  std::vector<Row> rows;
  for (const std::int64_t hidden : sizes) {
    ParameterInfo info;
    info.name = "bench.weight";
    info.shape = {hidden, hidden};
    const at::ScalarType activation = policy.activation(), parameter = policy.dtypes(info).parameter;
    const at::Tensor x = values({tokens, hidden}, activation), b = values({hidden}, parameter);
    const Parameter weight{info, values(info.shape, parameter)};
    const at::Tensor& w = weight.tensor;
    std::vector<Plain> plain;
    for (const at::ScalarType format : std::set<at::ScalarType>{activation, at::kFloat})
      plain.push_back({x.to(format, false, true), w.to(format, false, true), b.to(format, false, true)});
    const at::Tensor w_gradient = at::zeros({hidden, hidden}, at::TensorOptions().dtype(policy.dtypes(info).gradient));
    for (const bool backward : {false, true}) {
      const at::Tensor seed = at::ones_like(x);
      const auto run = [&] {
        policy.linear(x, weight, b);
        if (!backward) return;
        policy.input_gradient(seed, weight);
        policy.add_weight_gradient(seed, x, info, w_gradient, /*first=*/false);
      };
      std::vector<Work> floors;
      for (const Plain& one : plain) {
        for (const at::Tensor& tensor : {one.x, one.w, one.b}) tensor.set_requires_grad(backward);
        floors.push_back([backward, &one, seed = at::ones_like(one.x)] {
          const at::Tensor y = at::linear(one.x, one.w, one.b);
          if (backward) torch::autograd::backward({y}, {seed});
        });
      }
      rows.push_back(timer.time(
          {.name = backward ? "linear, forward and backward" : "linear, forward",
           .size = format("{} x {} x {}", tokens, hidden, hidden),
           .floor = std::string("at::linear in ") + c10::toString(activation) + (plain.size() > 1 ? " or Float" : ""),
           .work = (backward ? 6.0 : 2.0) * static_cast<double>(tokens * hidden * hidden),
           .work_unit = "FLOP"},
          run, floors));
    }
  }
  return rows;
}

}  // namespace strata::bench
