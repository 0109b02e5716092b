// @name@: its layers run in order, and its gradients match finite differences.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <strata/fakes/model_context.hpp>
#include <strata/fakes/plugin_library.hpp>

#include <cmath>

#include "catch.hpp"

using namespace strata;

namespace {

const BatchShape shape{1, 8, at::kDouble};

MicroBatch batch() {
  MicroBatch batch;
  batch.tokens = at::arange(0, 8, at::kLong).view({1, 8});
  batch.targets = batch.tokens.add(1);
  return batch;
}

}  // namespace

TEST_CASE("a model that knows nothing pays log 256 for every token") {
  const fakes::PluginLibrary library(PLUGIN_FILE);
  const fakes::LoadedPlugin<Model> model(library);
  const fakes::LayersInOrder layers(*model, shape, at::kDouble);  // all parameters are 0
  CHECK(std::abs(layers.forward(batch()).loss_sum.item<double>() - 8 * std::log(256.0)) < 1e-9);
}

TEST_CASE("z_loss is the square of log 256 for every token of such a model") {
  const fakes::PluginLibrary library(PLUGIN_FILE);
  const fakes::LoadedPlugin<Model> model(library, {{"z_loss", "0.5"}});
  const fakes::LayersInOrder layers(*model, shape, at::kDouble);
  CHECK(std::abs(layers.forward(batch()).auxiliary_loss.item<double>() - 4 * std::pow(std::log(256.0), 2)) < 1e-9);
}

TEST_CASE("the logits of a row say the loss of its target") {
  const fakes::PluginLibrary library(PLUGIN_FILE);
  const fakes::LoadedPlugin<Model> model(library);
  const fakes::LayersInOrder layers(*model, shape, at::kDouble);
  for (const auto& layer : layers.layers()) layer->parameters().at(0)->tensor.detach().normal_(0.0, 0.5);
  MicroBatch asking = batch();
  asking.asked_rows = at::arange(0, 8, at::kLong);
  const at::Tensor losses = layers.forward(asking).logits.log_softmax(1).gather(1, batch().targets.view({8, 1}));
  CHECK(std::abs(layers.forward(batch()).loss_sum.item<double>() + losses.sum().item<double>()) < 1e-9);
}

TEST_CASE("gradients are those of finite differences") {
  const fakes::PluginLibrary library(PLUGIN_FILE);
  const fakes::LoadedPlugin<Model> model(library, {{"width", "4"}, {"z_loss", "0.1"}});
  const fakes::LayersInOrder layers(*model, shape, at::kDouble);
  std::vector<at::Tensor> weights;
  for (const auto& layer : layers.layers()) {
    at::Tensor& weight = layer->parameters().at(0)->tensor;
    weight.detach().normal_(0.0, 0.5);
    weights.push_back(weight);
  }
  const auto minimized = [&] {
    const LayerOutput output = layers.forward(batch());
    return output.loss_sum + output.auxiliary_loss;
  };
  minimized().backward();
  for (const at::Tensor& weight : weights) {
    const double gradient = weight.grad()[0][0].item<double>();
    const at::Tensor element = weight.detach()[0][0];
    constexpr double difference = 1e-4;
    element.add_(difference);
    const double above = minimized().item<double>();
    element.sub_(2 * difference);
    const double below = minimized().item<double>();
    element.add_(difference);
    CHECK(std::abs(gradient - (above - below) / (2 * difference)) < 1e-6);
  }
}
