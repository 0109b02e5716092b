// The plugin's layers, run one by one with gradients into preset buffers, against one naive graph of the whole model.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <strata/error.hpp>
#include <strata/fakes/plugin_library.hpp>
#include <strata/model.hpp>

#include <cmath>

#include "catch.hpp"
#include "layers_in_order.hpp"

namespace {

struct Case {
  bool parallel = true;
  bool tied = false;
  double rotary_fraction = 0.5;
  std::int64_t loss_chunk = 0;
  std::int64_t mlp_chunk = 0;
};

constexpr std::int64_t hidden = 24, heads = 3, vocabulary = 50, samples = 2, positions = 7;

using Plugin = strata::fakes::LoadedPlugin<strata::Model>;

Plugin small(const Case& c) {
  const auto text = [](bool value) { return value ? "true" : "false"; };
  return Plugin(strata::fakes::PluginLibrary(GPT_NEOX_LIBRARY),
                {{"hidden_size", std::to_string(hidden)},
                 {"layers", "2"},
                 {"heads", std::to_string(heads)},
                 {"vocabulary", std::to_string(vocabulary)},
                 {"loss_chunk", std::to_string(c.loss_chunk)},
                 {"mlp_chunk", std::to_string(c.mlp_chunk)},
                 {"parallel_residual", text(c.parallel)},
                 {"tie_embeddings", text(c.tied)},
                 {"rotary_fraction", std::to_string(c.rotary_fraction)}});
}

strata::MicroBatch batch_of(at::Device device = at::kCPU) {
  at::manual_seed(3);
  strata::MicroBatch batch;
  batch.tokens = at::randint(0, vocabulary, {samples, positions}, at::kLong).to(device);
  batch.targets = at::randint(0, vocabulary, {samples, positions}, at::kLong);
  batch.targets[1][2] = -100;
  batch.targets = batch.targets.to(device);
  return batch;
}

// The whole model in the plainest operators, written from the published architecture.
struct Naive {
  const std::map<std::string, at::Tensor>& p;
  Case c;

  at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    return at::layer_norm(x, {x.size(-1)}, p.at(name + ".weight"), p.at(name + ".bias"), 1e-5);
  }
  at::Tensor linear(const at::Tensor& x, const std::string& name) const {
    return at::matmul(x, p.at(name + ".weight").t()) + p.at(name + ".bias");
  }
  at::Tensor rotate(const at::Tensor& x) const {  // [samples, heads, positions, size]
    const std::int64_t dimensions = static_cast<std::int64_t>(static_cast<double>(x.size(3)) * c.rotary_fraction);
    if (dimensions == 0) return x;
    const at::Tensor exponents =
        at::arange(0, dimensions, 2, x.options().requires_grad(false)) / static_cast<double>(dimensions);
    const at::Tensor angles =
        at::outer(at::arange(x.size(2), x.options().requires_grad(false)), at::pow(10000.0, exponents).reciprocal());
    const at::Tensor both = at::cat({angles, angles}, 1);
    const at::Tensor part = x.narrow(3, 0, dimensions), rest = x.narrow(3, dimensions, x.size(3) - dimensions);
    const auto halves = part.chunk(2, 3);
    return at::cat({part * both.cos() + at::cat({-halves[1], halves[0]}, 3) * both.sin(), rest}, 3);
  }
  at::Tensor attention(const at::Tensor& x, const std::string& name) const {
    const std::int64_t size = hidden / heads;
    const at::Tensor qkv =
        linear(x, name + ".query_key_value").view({samples, positions, heads, 3 * size}).transpose(1, 2);
    const auto parts = qkv.chunk(3, 3);
    const at::Tensor scores =
        at::matmul(rotate(parts[0]), rotate(parts[1]).transpose(2, 3)) / std::sqrt(static_cast<double>(size));
    const at::Tensor weights =
        at::softmax(scores.masked_fill(at::ones({positions, positions}, at::kBool).triu(1), -INFINITY), -1);
    return linear(at::matmul(weights, parts[2]).transpose(1, 2).reshape({samples, positions, hidden}), name + ".dense");
  }
  at::Tensor mlp(const at::Tensor& x, const std::string& name) const {
    const at::Tensor inner = linear(x, name + ".dense_h_to_4h");
    return linear(inner * 0.5 * (1.0 + at::erf(inner / std::sqrt(2.0))), name + ".dense_4h_to_h");
  }
  at::Tensor loss(const strata::MicroBatch& batch) const {
    at::Tensor x = at::embedding(p.at("gpt_neox.embed_in.weight"), batch.tokens);
    for (int i = 0; i < 2; ++i) {
      const std::string name = "gpt_neox.layers." + std::to_string(i);
      const at::Tensor attended = attention(norm(x, name + ".input_layernorm"), name + ".attention") + x;
      x = attended + mlp(norm(c.parallel ? x : attended, name + ".post_attention_layernorm"), name + ".mlp");
    }
    const at::Tensor head = p.at(c.tied ? "gpt_neox.embed_in.weight" : "embed_out.weight");
    const at::Tensor logits = at::matmul(norm(x, "gpt_neox.final_layer_norm"), head.t());
    return at::cross_entropy_loss(logits.view({-1, vocabulary}), batch.targets.view({-1}), {}, at::Reduction::Sum,
                                  -100);
  }
};

// The loss and every gradient, by the plugin and by one graph; the largest difference relative to each tensor's largest
// value.
double compare(const Case& c, at::ScalarType dtype) {
  const Plugin model = small(c);
  LayersInOrder run(*model, {samples, positions, dtype});
  run.make_parameters(dtype, dtype);
  return difference_from_one_graph(run, batch_of(), [&](const strata::MicroBatch& micro_batch) {
    return Naive{run.parameters, c}.loss(micro_batch);
  });
}

}  // namespace

TEST_CASE("loss and gradients equal one naive graph") {
  for (const bool parallel : {true, false}) {
    for (const bool tied : {true, false}) {
      for (const double fraction : {0.25, 1.0, 0.0}) {
        for (const std::int64_t chunk : {0, 5}) {  // of 14 rows
          CAPTURE(parallel, tied, fraction, chunk);
          CHECK(compare({parallel, tied, fraction, chunk, chunk}, at::kFloat) < 2e-5);
        }
      }
    }
  }
  // The plugin's rotary tables are fp32 in every dtype, which bounds this one.
  CHECK(compare({}, at::kDouble) < 1e-6);
}

TEST_CASE("gradients equal finite differences") {
  const Plugin model = small({});
  LayersInOrder run(*model, {samples, positions, at::kDouble});
  run.make_parameters(at::kDouble, at::kDouble);
  run.forward_backward(batch_of(), 1.0);
  double predicted = 0.0;
  std::map<std::string, at::Tensor> directions;
  for (auto& [name, tensor] : run.parameters) {
    directions[name] = at::randn(tensor.sizes(), at::kDouble);
    predicted += (directions[name] * tensor.grad()).sum().item<double>();
  }
  const auto loss_at = [&](double step) {
    const c10::NoGradGuard no_grad;
    for (auto& [name, tensor] : run.parameters) tensor.add_(directions[name], step);
    strata::LayerOutput output;
    for (std::size_t i = 0; i < run.size(); ++i) output = run.layer(i).forward(output.activations, batch_of());
    for (auto& [name, tensor] : run.parameters) tensor.add_(directions[name], -step);
    return output.loss_sum.item<double>();
  };
  CHECK((loss_at(1e-6) - loss_at(-1e-6)) / 2e-6 == Approx(predicted).epsilon(1e-6));
}

TEST_CASE("bf16 parameters accumulate into fp32 gradients, micro-batch after micro-batch") {
  const Plugin model = small({});
  LayersInOrder wide(*model, {samples, positions, at::kFloat}), narrow(*model, {samples, positions, at::kBFloat16});
  wide.make_parameters(at::kFloat, at::kFloat);
  narrow.make_parameters(at::kBFloat16, at::kFloat);
  const float exact = wide.forward_backward(batch_of(), 0.1).item<float>();
  const float rounded = narrow.forward_backward(batch_of(), 0.1).item<float>();
  CHECK(rounded == Approx(exact).epsilon(0.02));
  narrow.forward_backward(batch_of(), 0.1);
  for (auto& [name, tensor] : wide.parameters) {
    const at::Tensor twice = narrow.parameters[name].grad();
    INFO(name);
    CHECK(twice.scalar_type() == at::kFloat);
    // a key's bias moves no softmax: its gradient is nothing but rounding
    CHECK((twice - 2 * tensor.grad()).norm().item<double>() <
          0.08 * std::max(0.5, 2 * tensor.grad().norm().item<double>()));
  }
}

TEST_CASE("a forward repeated gives equal bits, with gradients or without") {
  const Plugin model = small({});
  LayersInOrder run(*model, {samples, positions, at::kFloat});
  run.make_parameters(at::kFloat, at::kFloat);
  strata::Tensors input;
  for (std::size_t i = 0; i < run.size(); ++i) {
    const strata::LayerOutput once = run.layer(i).forward(input, batch_of());
    const c10::NoGradGuard no_grad;
    const strata::LayerOutput again = run.layer(i).forward(input, batch_of());
    if (i + 1 == run.size()) {
      CHECK(at::equal(once.loss_sum, again.loss_sum));
      return;
    }
    CHECK(at::equal(once.activations[0], again.activations[0]));
    input = {again.activations[0]};
  }
}
