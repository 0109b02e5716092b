// Decoders whose blocks differ, against one naive graph of the whole model.
#include <ATen/ATen.h>
#include <strata/toolbox/decoder.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "catch.hpp"
#include "error_of.hpp"
#include "unit/model/layers_in_order.hpp"

using namespace strata;

namespace {

constexpr std::int64_t hidden = 24, heads = 4, head_size = 8, intermediate = 40, vocabulary = 50, samples = 2,
                       tokens = 7;
constexpr double epsilon = 1e-5;

// Blocks that differ in everything that a block may have for itself.
std::vector<BlockShape> different_blocks() {
  using Norm = BlockShape::Norm;
  using Mlp = BlockShape::Mlp;
  const RotaryScaling slower{.kind = RotaryScaling::Kind::Linear, .factor = 2.0};
  return {{.norm = Norm::Layer, .mlp = Mlp::Gelu, .rotary = {.fraction = 1.0}},
          {.norm = Norm::RootMeanSquare, .mlp = Mlp::SwiGlu, .parallel_residual = true},
          {.norm = Norm::RootMeanSquare, .mlp = Mlp::GeluByTanh, .rotary = {.fraction = 1.0, .base = 500.0}},
          {.norm = Norm::Layer,
           .mlp = Mlp::SwiGlu,
           .parallel_residual = true,
           .rotary = {.fraction = 0.5, .base = 20.0, .scaling = slower}}};
}

DecoderShape shape_of(std::vector<BlockShape> blocks, DecoderShape::Projections projections) {
  const bool apart = projections == DecoderShape::Projections::Apart;
  return {.hidden = hidden,
          .heads = heads,
          .key_value_heads = apart ? heads / 2 : heads,
          .head_size = head_size,
          .intermediate = intermediate,
          .vocabulary = vocabulary,
          .maximum_positions = tokens,
          .blocks = std::move(blocks),
          .final_norm = BlockShape::Norm::RootMeanSquare,
          .norm_epsilon = epsilon,
          .projections = projections,
          .names = {.embedding = "embedding",
                    .block = "blocks.",
                    .final_norm = "final_norm",
                    .head = "head",
                    .attention_norm = "attention_norm",
                    .mlp_norm = "mlp_norm",
                    .query_key_value = "query_key_value",
                    .query = "query",
                    .key = "key",
                    .value = "value",
                    .attention_output = "attention_output",
                    .gate = "gate",
                    .up = "up",
                    .down = "down"}};
}

MicroBatch random_batch() {
  at::manual_seed(3);
  MicroBatch batch;
  batch.tokens = at::randint(0, vocabulary, {samples, tokens}, at::kLong);
  batch.targets = at::randint(0, vocabulary, {samples, tokens}, at::kLong);
  batch.targets[1][2] = -100;
  return batch;
}

// The whole model in the plainest operators.
struct Naive {
  const std::map<std::string, at::Tensor>& p;
  const DecoderShape& shape;

  at::Tensor norm(const at::Tensor& x, const std::string& name, BlockShape::Norm kind) const {
    if (kind == BlockShape::Norm::Layer)
      return at::layer_norm(x, {x.size(-1)}, p.at(name + ".weight"), p.at(name + ".bias"), shape.norm_epsilon);
    return x * (x.square().mean(-1, true) + shape.norm_epsilon).rsqrt() * p.at(name + ".weight");
  }
  at::Tensor linear(const at::Tensor& x, const std::string& name) const {
    return at::matmul(x, p.at(name + ".weight").t()) + p.at(name + ".bias");
  }
  static at::Tensor rotate(const at::Tensor& x, const RotaryShape& rotary) {  // [samples, heads, tokens, size]
    const auto dimensions = static_cast<std::int64_t>(head_size * rotary.fraction);
    if (dimensions == 0) return x;
    const at::TensorOptions numbers = x.options().requires_grad(false);
    const at::Tensor exponents = at::arange(0, dimensions, 2, numbers) / static_cast<double>(dimensions);
    const at::Tensor frequencies = at::pow(rotary.base, exponents).reciprocal() / rotary.scaling.factor;
    const at::Tensor angles = at::outer(at::arange(tokens, numbers), frequencies), both = at::cat({angles, angles}, 1);
    const at::Tensor part = x.narrow(3, 0, dimensions), rest = x.narrow(3, dimensions, head_size - dimensions);
    const auto halves = part.chunk(2, 3);
    return at::cat({part * both.cos() + at::cat({-halves[1], halves[0]}, 3) * both.sin(), rest}, 3);
  }
  std::vector<at::Tensor> queries_keys_values(const at::Tensor& x, const std::string& name) const {
    const auto of_heads = [](const at::Tensor& y, std::int64_t size) {
      return y.view({samples, tokens, -1, size}).transpose(1, 2);
    };
    if (shape.projections == DecoderShape::Projections::ByHead)
      return of_heads(linear(x, name + "query_key_value"), 3 * head_size).chunk(3, 3);
    std::vector<at::Tensor> parts;
    for (const char* const kind : {"query", "key", "value"})
      parts.push_back(of_heads(linear(x, name + kind), head_size).repeat_interleave(kind[0] == 'q' ? 1 : 2, 1));
    return parts;
  }
  at::Tensor attention(const at::Tensor& x, const std::string& name, const BlockShape& block) const {
    const std::vector<at::Tensor> parts = queries_keys_values(x, name);
    const at::Tensor keys = rotate(parts[1], block.rotary).transpose(2, 3);
    const at::Tensor scores = at::matmul(rotate(parts[0], block.rotary), keys) / std::sqrt(double{head_size});
    const at::Tensor future = at::ones({tokens, tokens}, at::kBool).triu(1);
    const at::Tensor mixed = at::matmul(at::softmax(scores.masked_fill(future, -INFINITY), -1), parts[2]);
    return linear(mixed.transpose(1, 2).reshape({samples, tokens, -1}), name + "attention_output");
  }
  at::Tensor mlp(const at::Tensor& x, const std::string& name, const BlockShape& block) const {
    const at::Tensor up = linear(x, name + "up");
    if (block.mlp == BlockShape::Mlp::SwiGlu) {
      const at::Tensor gate = linear(x, name + "gate");
      return linear(gate * at::sigmoid(gate) * up, name + "down");
    }
    return linear(at::gelu(up, block.mlp == BlockShape::Mlp::Gelu ? "none" : "tanh"), name + "down");
  }
  at::Tensor loss(const MicroBatch& batch) const {
    at::Tensor x = at::embedding(p.at("embedding.weight"), batch.tokens);
    for (std::size_t i = 0; i < shape.blocks.size(); ++i) {
      const BlockShape& block = shape.blocks[i];
      const std::string name = "blocks." + std::to_string(i) + ".";
      const at::Tensor attended = attention(norm(x, name + "attention_norm", block.norm), name, block) + x;
      x = attended + mlp(norm(block.parallel_residual ? x : attended, name + "mlp_norm", block.norm), name, block);
    }
    const at::Tensor logits = at::matmul(norm(x, "final_norm", shape.final_norm), p.at("head.weight").t());
    return at::cross_entropy_loss(logits.view({-1, vocabulary}), batch.targets.view({-1}), {}, at::Reduction::Sum,
                                  -100);
  }
};

// Returns the largest difference of loss and gradients, relative to each tensor's largest value. In fp64, so that
// it does not depend on how a processor rounds products; the bound allows roundings of what is kept in fp32. `naive`:
// the shape of the naive graph.
double difference(const DecoderShape& shape, const DecoderShape& naive) {
  const Decoder decoder(shape);
  LayersInOrder run(decoder, {samples, tokens, at::kDouble});
  run.make_parameters(at::kDouble, at::kDouble);
  return difference_from_one_graph(run, random_batch(), [&](const MicroBatch& micro_batch) {
    return Naive{run.parameters, naive}.loss(micro_batch);
  });
}

}  // namespace

TEST_CASE("a decoder of different blocks equals one naive graph") {
  for (const auto projections : {DecoderShape::Projections::Apart, DecoderShape::Projections::ByHead}) {
    const DecoderShape shape = shape_of(different_blocks(), projections);
    CHECK(difference(shape, shape) < 1e-6);
  }
}

TEST_CASE("a small error in one block makes a decoder differ from the naive graph") {
  const auto projections = DecoderShape::Projections::Apart;
  const DecoderShape shape = shape_of(different_blocks(), projections);
  std::vector<BlockShape> blocks = different_blocks();
  blocks[2].rotary.base *= 1.001;
  CHECK(difference(shape, shape_of(blocks, projections)) > 1e-5);
  blocks = different_blocks();
  blocks[3].rotary.scaling.factor *= 1.001;
  CHECK(difference(shape, shape_of(blocks, projections)) > 1e-5);
  DecoderShape other = shape;
  other.norm_epsilon *= 2.0;
  CHECK(difference(shape, other) > 1e-5);
  blocks = different_blocks();
  blocks[0].mlp = BlockShape::Mlp::GeluByTanh;
  CHECK(difference(shape, shape_of(blocks, projections)) > 1e-5);
}

TEST_CASE("each block has the parameters and costs of its own shape") {
  const Decoder decoder(shape_of(different_blocks(), DecoderShape::Projections::Apart));
  const BatchShape batch{samples, tokens, at::kFloat};
  REQUIRE(decoder.layers() == 6);
  for (int number = 0; number < 4; ++number) {
    const BlockShape block = different_blocks()[static_cast<std::size_t>(number)];
    const LayerInfo info = decoder.describe(number + 1, batch);
    const auto has = [&](const std::string& name) {
      return std::ranges::count(info.parameters, "blocks." + std::to_string(number) + "." + name,
                                &ParameterInfo::name) == 1;
    };
    const bool gated = block.mlp == BlockShape::Mlp::SwiGlu;
    CAPTURE(number);
    CHECK(has("mlp_norm.bias") == (block.norm == BlockShape::Norm::Layer));
    CHECK(has("gate.weight") == gated);
    constexpr std::int64_t inner = heads * head_size;
    const std::int64_t weights = hidden * (3 * inner + (gated ? 3 : 2) * intermediate);
    CHECK(info.forward_flops == 2.0 * samples * tokens * static_cast<double>(weights + 2 * tokens * inner));
  }
}

TEST_CASE("samples longer than the shortest window of the blocks are refused") {
  std::vector<BlockShape> blocks = different_blocks();
  blocks[1].window = 6;
  blocks[3].window = 5;
  const Decoder decoder(shape_of(blocks, DecoderShape::Projections::Apart));
  CHECK_NOTHROW(decoder.describe(1, {samples, 5}));
  CHECK_THAT(error_of<UserError>([&] { decoder.describe(1, {samples, 6}); }), Contains("sliding_window 5"));
}
