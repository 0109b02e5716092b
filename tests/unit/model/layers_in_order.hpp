#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <strata/model.hpp>
#include <strata/toolbox/product.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "catch.hpp"

// A model run as the engine runs it: layer by layer, inputs detached, gradients into preset .grad.
class LayersInOrder final : public strata::ModelContext {
 public:
  // `model`: a strata::Model, or a strata::Decoder.
  LayersInOrder(const auto& model, strata::BatchShape batch) : batch_(batch) {
    for (int i = 0; i < model.layers(); ++i) layers_.push_back(model.build(i, *this));
  }
  const strata::BatchShape& batch() const override { return batch_; }
  at::Tensor linear(const at::Tensor& x, const strata::Parameter& w, const strata::Parameter* b) override {
    return strata::linear(x, w.tensor, b == nullptr ? at::Tensor() : b->tensor);
  }

  // Random values of `dtype`, and zero gradients of `gradient_dtype`, by name; tied parameters are one tensor.
  void make_parameters(at::ScalarType dtype, at::ScalarType gradient_dtype, at::Device device = at::kCPU) {
    at::manual_seed(7);
    for (const auto& layer : layers_) {
      for (strata::Parameter* parameter : layer->parameters()) {
        at::Tensor& tensor = parameters[parameter->info.name];
        if (!tensor.defined()) {
          tensor = (at::randn(parameter->info.shape) * 0.3 + (parameter->info.shape.size() == 1 ? 0.5 : 0.0))
                       .to(dtype)
                       .to(device);
          tensor.set_requires_grad(true);
          tensor.mutable_grad() = at::zeros(parameter->info.shape, at::TensorOptions(gradient_dtype).device(device));
        }
        parameter->tensor = tensor;
      }
    }
  }

  // The loss sum; gradients of seed * loss are added to .grad.
  at::Tensor forward_backward(const strata::MicroBatch& micro_batch, double seed) {
    std::vector<strata::Tensors> inputs{{}};
    std::vector<strata::LayerOutput> outputs;
    for (const auto& layer : layers_) {
      outputs.push_back(layer->forward(inputs.back(), micro_batch));
      strata::Tensors next;
      for (const at::Tensor& t : outputs.back().activations) next.push_back(t.detach().set_requires_grad(true));
      inputs.push_back(next);
    }
    const at::Tensor loss = outputs.back().loss_sum;
    at::Tensor gradient = at::full({}, seed, loss.options().requires_grad(false));
    for (std::size_t i = layers_.size(); i-- > 0;) {
      std::vector<at::Tensor> leaves = inputs[i];
      for (strata::Parameter* parameter : layers_[i]->parameters()) leaves.push_back(parameter->tensor);
      const at::Tensor output = i + 1 == layers_.size() ? loss : outputs[i].activations[0];
      torch::autograd::backward({output}, {gradient}, false, false, leaves);
      if (i > 0) gradient = inputs[i][0].grad();
    }
    return loss.detach();
  }

  strata::Layer& layer(std::size_t i) { return *layers_[i]; }
  std::size_t size() const { return layers_.size(); }
  std::map<std::string, at::Tensor> parameters;

 private:
  strata::BatchShape batch_;
  std::vector<std::unique_ptr<strata::Layer>> layers_;
};

// Runs the layers, and then `naive_loss` of the same parameters as one graph. Returns the largest difference of the
// loss and of any gradient, relative to each tensor's largest value.
inline double difference_from_one_graph(LayersInOrder& run, const strata::MicroBatch& micro_batch,
                                        const std::function<at::Tensor(const strata::MicroBatch&)>& naive_loss) {
  constexpr double seed = 0.25;
  const at::Tensor loss = run.forward_backward(micro_batch, seed);
  std::map<std::string, at::Tensor> gradients;
  for (auto& [name, tensor] : run.parameters) {
    gradients[name] = tensor.grad();
    tensor.mutable_grad() = at::Tensor();
  }
  const at::Tensor naive = naive_loss(micro_batch);
  torch::autograd::backward({naive * seed}, {});
  double worst = (loss - naive).abs().item<double>() / naive.item<double>();
  for (auto& [name, tensor] : run.parameters) {
    INFO(name);
    REQUIRE(tensor.grad().defined());
    const double scale = std::max(1e-3, tensor.grad().abs().max().item<double>());
    worst = std::max(worst, (gradients[name] - tensor.grad()).abs().max().item<double>() / scale);
  }
  return worst;
}
