#include "stage/layer_costs.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fnmatch.h>
#include <torch/csrc/autograd/autograd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <chrono>
#include <limits>
#include <string_view>
#include <utility>

#include "group/numbers.hpp"
#include "plugins/plugin_call.hpp"
#include "state/layout.hpp"

namespace strata::stage {

namespace {

constexpr std::string_view names = "names:";

// 1 for the layers that the pattern names, else 0.
std::vector<std::int64_t> named(const std::vector<LayerInfo>& layers, const std::string& pattern) {
  std::vector<std::int64_t> found;
  for (const LayerInfo& layer : layers) found.push_back(::fnmatch(pattern.c_str(), layer.name.c_str(), 0) == 0 ? 1 : 0);
  if (std::ranges::count(found, 1) > 0) return found;
  std::string all;
  for (const LayerInfo& layer : layers) all += (all.empty() ? "" : ", ") + layer.name;
  throw UserError("parallel.cut is names:{}, and no layer of this model has such a name; they are {}", pattern, all);
}

// One layer alone, with parameters and buffers of its own.
class LayerAlone {
 public:
  LayerAlone(std::unique_ptr<Layer> layer, int number, const PrecisionPolicy& precision, at::Device device)
      : layer_(std::move(layer)), layout_(state::lay_out({layer_.get()}, {number}, precision, device)) {
    for (const auto& flat : layout_.flat) {
      const FlatParameterInfo& info = flat->info();
      const at::TensorOptions options = at::TensorOptions().device(device);
      flat->bind(at::randn({info.elements}, options.dtype(at::kFloat)).mul_(0.02).to(info.dtypes.parameter));
      if (info.trainable) flat->set_gradient_buffer(at::zeros({info.elements}, options.dtype(info.dtypes.gradient)));
    }
  }

  // Nanoseconds of a forward, and of a backward.
  std::pair<std::int64_t, std::int64_t> run(const Tensors& inputs, const MicroBatch& batch, Device& device) {
    const auto now = [&] {
      device.synchronize();
      return std::chrono::steady_clock::now().time_since_epoch();
    };
    const auto nanoseconds = [](auto duration) {
      return std::int64_t{std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count()};
    };
    const c10::AutoGradMode grad_mode(true);
    const auto begin = now();
    const LayerOutput output = layer_->forward(inputs, batch);
    const auto forward = now();
    Tensors outputs = output.activations, seeds;
    for (const at::Tensor& loss : {output.loss_sum, output.auxiliary_loss})
      if (loss.defined()) outputs.push_back(loss);
    std::erase_if(outputs, [](const at::Tensor& tensor) { return !tensor.requires_grad(); });
    for (const at::Tensor& tensor : outputs) seeds.push_back(at::ones(tensor.sizes(), tensor.options()));
    if (!outputs.empty()) torch::autograd::backward(outputs, seeds);
    return {nanoseconds(forward - begin), nanoseconds(now() - forward)};
  }

 private:
  std::unique_ptr<Layer> layer_;
  state::Layout layout_;
};

Tensors random_inputs(const std::vector<TensorShape>& shapes, at::Device device) {
  Tensors inputs;
  for (const TensorShape& shape : shapes) {
    const at::TensorOptions options = at::TensorOptions().dtype(shape.dtype).device(device);
    inputs.push_back(at::isFloatingType(shape.dtype)
                         ? at::randn(shape.extents, options.dtype(at::kFloat)).to(shape.dtype).set_requires_grad(true)
                         : at::zeros(shape.extents, options));
  }
  return inputs;
}

}  // namespace

std::vector<LayerCost> layer_costs(const std::vector<LayerInfo>& layers, const std::string& cut,
                                   const std::vector<LayerTime>& measured) {
  const bool has_operations = std::ranges::any_of(layers, [](const LayerInfo& info) { return info.forward_flops > 0; });
  std::vector<std::int64_t> of_name;
  if (cut.starts_with(names)) of_name = named(layers, cut.substr(names.size()));
  std::vector<LayerCost> costs;
  for (std::size_t number = 0; number < layers.size(); ++number) {
    const LayerInfo& info = layers[number];
    LayerCost& cost = costs.emplace_back();
    for (const ParameterInfo& parameter : info.parameters) cost.parameters += parameter.elements();
    cost.forward_time = static_cast<std::int64_t>(info.forward_flops);
    cost.backward_input_time = cost.backward_weight_time = cost.forward_time;
    if (!measured.empty()) {
      cost.forward_time = measured[number].forward;
      cost.backward_input_time = measured[number].backward_input;
      cost.backward_weight_time = measured[number].backward_weight;
    }
    cost.activation_bytes = info.activation_bytes;
    cost.weight = !of_name.empty()      ? of_name[number]
                  : cut == "layers"     ? 1
                  : cut == "parameters" ? cost.parameters
                  : cut.empty() && !has_operations && measured.empty()
                      ? cost.parameters
                      : cost.forward_time + cost.backward_input_time + cost.backward_weight_time;
  }
  return costs;
}

std::vector<LayerTime> measure_layers(const std::vector<LayerInfo>& layers,
                                      const std::function<std::unique_ptr<Layer>(int number)>& build,
                                      const Setup& setup, Memory& memory, Group& world) {
  const BatchShape& batch = setup.place.batch;
  const std::int64_t vocabulary = setup.plugins.model->vocabulary();
  const at::Device device = memory.tensors();
  constexpr int runs = 5;  // the first two, which make what later ones find made, do not count
  const at::TensorOptions integers = at::TensorOptions().dtype(at::kLong).device(device);
  MicroBatch tokens;
  tokens.tokens = at::randint(vocabulary, {batch.micro_batch, batch.sequence_length}, integers);
  tokens.targets = at::randint(vocabulary, {batch.micro_batch, batch.sequence_length}, integers);
  std::vector<std::int64_t> mine(2 * layers.size(), 0);
  for (std::size_t number = 0; number < layers.size(); ++number) {
    if (static_cast<int>(number) % world.size() != world.rank()) continue;
    std::int64_t& forward = mine[2 * number];
    std::int64_t& backward = mine[2 * number + 1];
    forward = backward = std::numeric_limits<std::int64_t>::max();
    plugins::plugin_call(
        setup.plugins.model.name, [&] { return "measuring " + layers[number].name; }, setup.place.rank,
        [&] {
          LayerAlone alone(build(static_cast<int>(number)), static_cast<int>(number), *setup.plugins.precision, device);
          const Tensors inputs = number == 0 ? Tensors() : random_inputs(layers[number - 1].outputs, device);
          for (int run = 0; run < runs; ++run) {
            const auto [there, back] = alone.run(inputs, tokens, memory.device());
            if (run < 2) continue;
            forward = std::min(forward, there);  // what else runs on the machine only adds to it
            backward = std::min(backward, back);
          }
        });
  }
  const std::vector<std::int64_t> all = group::reduce_numbers(world, device, mine);
  std::vector<LayerTime> times;
  for (std::size_t number = 0; number < layers.size(); ++number) {
    const std::int64_t forward = all[2 * number], half = all[2 * number + 1] / 2;
    times.push_back(
        {forward, half + (setup.config.recompute.covers(static_cast<std::int64_t>(number)) ? forward : 0), half});
  }
  return times;
}

}  // namespace strata::stage
