// Layers of a model, forward and backward in fp32 on the processor, beside one square matmul of as many FLOP.
#include <ATen/ops/linear.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <strata/error.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "bench/kinds.hpp"

namespace strata::bench {

namespace {

class PlainModelContext final : public ModelContext {
 public:
  explicit PlainModelContext(BatchShape batch) : batch_(batch) {}
  const BatchShape& batch() const override { return batch_; }
  at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) override {
    return b.defined() ? at::linear(x, w, b) : at::linear(x, w);
  }

 private:
  BatchShape batch_;
};

at::Tensor small_values(const std::vector<std::int64_t>& shape) { return at::rand(shape).sub(0.5).mul(0.1); }

// One layer with parameters of its own, and an input such as the layer before gives.
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

// A matmul of `tokens` rows and a square weight with about `flops`, forward and backward; `scale`: what its time is
// multiplied by to be exact.
struct PlainMatmul {
  PlainMatmul(std::int64_t tokens, double flops)
      : extent(std::max<std::int64_t>(std::llround(std::sqrt(flops / (2.0 * static_cast<double>(tokens)))), 1)),
        scale(flops / (2.0 * static_cast<double>(tokens * extent * extent))),
        x(small_values({tokens, extent})),
        w(small_values({extent, extent})),
        seed(at::ones_like(x)) {
    x.set_requires_grad(true);
    w.set_requires_grad(true);
  }
  void run() const { torch::autograd::backward({at::linear(x, w)}, {seed}); }

  std::int64_t extent;
  double scale;
  at::Tensor x, w, seed;
};

}  // namespace

std::vector<Row> bench_model(const Model& model, const Sizes& sizes, const Turns& turns) {
  std::vector<Row> rows;
  for (const std::int64_t size : sizes) {
    if (size > model.maximum_sequence_length())
      throw UserError("--size " + std::to_string(size) + ": this model takes at most " +
                      std::to_string(model.maximum_sequence_length()) + " tokens a sample");
    PlainModelContext context({1, size, at::kFloat});
    for (const int number : std::set<int>{0, model.layers() / 2, model.layers() - 1}) {
      const LayerInfo info = model.describe(number, context.batch());
      if (info.forward_flops <= 0.0) continue;  // an embedding looks up: no matmul to hold it against
      BenchedLayer layer(model, number, context);
      const PlainMatmul floor(size, info.forward_flops);
      Row row;
      row.name = info.name + ", forward and backward";
      row.size = std::to_string(size) + " tokens";
      row.floor = "at::linear " + std::to_string(size) + " x " + std::to_string(floor.extent) + " x " +
                  std::to_string(floor.extent) + " and its backward";
      row.work = 3.0 * info.forward_flops;
      row.work_unit = "FLOP";
      row = turns.time(std::move(row), [&] { layer.forward_and_backward(); }, [&] { floor.run(); });
      for (double& seconds : row.floor_values) seconds *= floor.scale;
      rows.push_back(std::move(row));
    }
  }
  if (rows.empty()) throw UserError("no layer of this model says how many FLOP its forward takes: there is nothing to hold it against");
  return rows;
}

}  // namespace strata::bench
