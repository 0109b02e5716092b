// A ModelContext without an engine: plain matmuls, and parameters with their own memory.
#pragma once
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <strata/model.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace strata::fakes {

class FakeModelContext final : public ModelContext {
 public:
  explicit FakeModelContext(BatchShape batch) : batch_(batch) {}
  const BatchShape& batch() const override { return batch_; }
  at::Tensor linear(const at::Tensor& x, const Parameter& w, const Parameter* b) override {
    const auto seen = [this](const Parameter& one) {
      return gives_weight_gradients ? one.tensor : one.tensor.detach();
    };
    return b != nullptr ? at::linear(x, seen(w), seen(*b)) : at::linear(x, seen(w));
  }

  bool gives_weight_gradients = true;  // false: no gradients of weights and biases, as in a split backward

 private:
  BatchShape batch_;
};

// All layers of a model. Parameters are leaf tensors of zeros on the CPU that require gradients; fill them before
// forward().
class LayersInOrder {
 public:
  LayersInOrder(const Model& model, BatchShape batch, at::ScalarType dtype = at::kFloat) : context_(batch) {
    for (int layer = 0; layer < model.layers(); ++layer) {
      layers_.push_back(model.build(layer, context_));
      for (Parameter* parameter : layers_.back()->parameters()) {
        parameter->tensor = at::zeros(parameter->info.shape, at::TensorOptions().dtype(dtype));
        parameter->tensor.set_requires_grad(parameter->info.trainable);
      }
    }
  }
  // Returns the output of the last layer, with the sum of all layers' auxiliary losses.
  LayerOutput forward(const MicroBatch& batch) const {
    LayerOutput output;
    for (const auto& layer : layers_) {
      const Tensors input = std::move(output.activations);
      const at::Tensor sum = std::move(output.auxiliary_loss);
      output = layer->forward(input, batch);
      if (sum.defined()) output.auxiliary_loss = output.auxiliary_loss.defined() ? sum.add(output.auxiliary_loss) : sum;
    }
    return output;
  }
  const std::vector<std::unique_ptr<Layer>>& layers() const { return layers_; }

 private:
  FakeModelContext context_;
  std::vector<std::unique_ptr<Layer>> layers_;
};

}  // namespace strata::fakes
