// Times forward and backward of a model's layers in fp32 on the CPU. Floor: one matmul with the FLOP of their weights.
#include <ATen/ops/linear.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <strata/error.hpp>
#include <strata/fakes/model_context.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "tools/bench/kinds.hpp"

namespace strata::bench {

namespace {

at::Tensor small_values(const std::vector<std::int64_t>& shape) {
  return at::rand(shape).sub(0.5).mul(0.1);
}

// One layer with its own parameters and an input like the previous layer's output.
class BenchedLayer {
 public:
  BenchedLayer(const Model& model, int number, ModelContext& context) : layer_(model.build(number, context)) {
    const BatchShape& batch = context.batch();
    for (Parameter* parameter : layer_->parameters()) {
      parameter->tensor = small_values(parameter->info.shape);
      parameter->tensor.set_requires_grad(parameter->info.trainable);
    }
    if (number > 0)
      for (const TensorShape& shape : model.describe(number - 1, batch).outputs) {
        const bool floating = at::isFloatingType(shape.dtype);
        input_.push_back(floating ? small_values(shape.extents).to(shape.dtype)
                                  : at::zeros(shape.extents, at::TensorOptions().dtype(shape.dtype)));
        input_.back().set_requires_grad(floating);
      }
    const at::TensorOptions integers = at::TensorOptions().dtype(at::kLong);
    batch_.tokens = at::zeros({batch.micro_batch, batch.sequence_length}, integers);
    batch_.targets = at::zeros({batch.micro_batch, batch.sequence_length}, integers);
  }
  void forward_and_backward() {
    const LayerOutput output = layer_->forward(input_, batch_);
    Tensors outputs, seeds;
    const auto seed = [&](const at::Tensor& tensor) {
      if (!tensor.defined() || !tensor.requires_grad()) return;
      outputs.push_back(tensor);
      seeds.push_back(at::ones_like(tensor));
    };
    for (const at::Tensor& tensor : output.activations) seed(tensor);
    seed(output.loss_sum);
    seed(output.auxiliary_loss);
    if (!outputs.empty()) torch::autograd::backward(outputs, seeds);
  }

 private:
  std::unique_ptr<Layer> layer_;
  Tensors input_;
  MicroBatch batch_;
};

// A matmul, forward and backward.
struct PlainMatmul {
  // [rows, extent] times [extent, extent], with no more than `flops` in its forward.
  PlainMatmul(std::int64_t rows, double flops)
      : extent(
            std::max(static_cast<std::int64_t>(std::sqrt(flops / (2.0 * static_cast<double>(rows)))), std::int64_t{1})),
        x(small_values({rows, extent})),
        w(small_values({extent, extent})),
        seed(at::ones_like(x)) {
    x.set_requires_grad(true);
    w.set_requires_grad(true);
  }
  void run() const { torch::autograd::backward({at::linear(x, w)}, {seed}); }

  std::int64_t extent;
  at::Tensor x, w, seed;
};

// The least FLOP of a forward: every token times every weight matrix, or the declared FLOP if fewer. FLOP of attention
// scores do not count, because masked positions can be skipped.
double least_flops(const LayerInfo& layer, std::int64_t tokens) {
  double weights = 0.0;
  for (const ParameterInfo& parameter : layer.parameters)
    if (parameter.shape.size() == 2) weights += static_cast<double>(parameter.elements());
  return weights > 0.0 ? std::min(layer.forward_flops, 2.0 * static_cast<double>(tokens) * weights)
                       : layer.forward_flops;
}

}  // namespace

std::vector<Row> bench_model(const Model& model, const Sizes& sizes, const InterleavedTimer& timer) {
  std::vector<Row> rows;
  for (const std::int64_t size : sizes) {
    if (size > model.maximum_sequence_length())
      throw UserError("--size {}: this model takes at most {} tokens per sample", size,
                      model.maximum_sequence_length());
    fakes::FakeModelContext context({1, size, at::kFloat});
    for (const int number : std::set<int>{0, model.layers() / 2, model.layers() - 1}) {
      const LayerInfo info = model.describe(number, context.batch());
      if (info.forward_flops <= 0.0) continue;  // an embedding has no matmul to compare with
      BenchedLayer layer(model, number, context);
      const double least = least_flops(info, size);
      const std::int64_t cube = std::max(static_cast<std::int64_t>(std::cbrt(least / 2.0)), std::int64_t{1});
      // Two shapes, rows = tokens and rows = columns; which is faster depends on the library.
      const std::array floors{PlainMatmul(size, least), PlainMatmul(cube, least)};
      const std::string extent = std::to_string(floors[0].extent);
      rows.push_back(
          timer.time({.name = info.name + ", forward and backward",
                      .size = format("{} tokens", size),
                      .floor = format("at::linear {} x {} x {} or of a cube, and its backward", size, extent, extent),
                      .work = 3.0 * info.forward_flops,
                      .work_unit = "FLOP"},
                     [&] { layer.forward_and_backward(); }, {[&] { floors[0].run(); }, [&] { floors[1].run(); }}));
    }
  }
  if (rows.empty())
    throw UserError(
        "no layer of this model declares forward_flops in describe(), so bench has no floor to compare with");
  return rows;
}

}  // namespace strata::bench
