#include "layers.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <strata/toolbox/by_rows.hpp>
#include <strata/toolbox/embedding.hpp>
#include <strata/toolbox/layer_norm.hpp>
#include <strata/toolbox/linear_cross_entropy.hpp>

#include <span>
#include <utility>

namespace strata::gpt_neox {
namespace {

constexpr const char* embedding_name = "gpt_neox.embed_in.weight";
constexpr const char* head_name = "embed_out.weight";

// The order of a block's parameters.
enum BlockParameter : std::size_t {
  InputNormWeight,
  InputNormBias,
  MlpNormWeight,
  MlpNormBias,
  QkvWeight,
  QkvBias,
  DenseWeight,
  DenseBias,
  UpWeight,
  UpBias,
  DownWeight,
  DownBias
};

// Tensor-parallel ranks share heads, the MLP's inner activations and the vocabulary.
constexpr Split rows{.dimension = 0}, columns{.dimension = 1};

ParameterInfo weight(const Sizes& sizes, std::string name, std::int64_t out, std::int64_t in, Split split) {
  ParameterInfo info;
  info.split = split;
  info.name = std::move(name);
  info.shape = {out, in};
  info.initializer = Initializer::normal(0.0, sizes.initializer_range);
  return info;
}

ParameterInfo vector(std::string name, std::int64_t length, Initializer initializer) {
  ParameterInfo info;
  info.name = std::move(name);
  info.shape = {length};
  info.initializer = initializer;
  return info;
}

void add_norm(std::vector<ParameterInfo>& list, const std::string& name, std::int64_t length) {
  list.push_back(vector(name + ".weight", length, Initializer::ones()));
  list.push_back(vector(name + ".bias", length, Initializer::zeros()));
}

void add_linear(std::vector<ParameterInfo>& list, const Sizes& sizes, const std::string& name, std::int64_t out,
                std::int64_t in, Split split) {
  list.push_back(weight(sizes, name + ".weight", out, in, split));
  list.push_back(vector(name + ".bias", out, Initializer::zeros()));
  if (split.dimension == 0) list.back().split = split;
  for (ParameterInfo& info : std::span(list).last(2)) info.linear_only = true;
}

ParameterInfo embedding_parameter(const Sizes& sizes) {
  ParameterInfo info = weight(sizes, embedding_name, sizes.vocabulary, sizes.hidden, rows);
  if (sizes.tie_embeddings) info.tie = embedding_name;
  return info;
}

std::vector<ParameterInfo> block_parameters(const Sizes& sizes, int block) {
  const std::string prefix = "gpt_neox.layers." + std::to_string(block) + ".";
  std::vector<ParameterInfo> list;
  add_norm(list, prefix + "input_layernorm", sizes.hidden);
  add_norm(list, prefix + "post_attention_layernorm", sizes.hidden);
  add_linear(list, sizes, prefix + "attention.query_key_value", 3 * sizes.hidden, sizes.hidden,
             {.dimension = 0, .unit = 3 * sizes.head_size()});
  add_linear(list, sizes, prefix + "attention.dense", sizes.hidden, sizes.hidden,
             {.dimension = 1, .unit = sizes.head_size()});
  add_linear(list, sizes, prefix + "mlp.dense_h_to_4h", sizes.intermediate, sizes.hidden, rows);
  add_linear(list, sizes, prefix + "mlp.dense_4h_to_h", sizes.hidden, sizes.intermediate, columns);
  return list;
}

std::vector<ParameterInfo> head_parameters(const Sizes& sizes) {
  std::vector<ParameterInfo> list;
  add_norm(list, "gpt_neox.final_layer_norm", sizes.hidden);
  list.push_back(weight(sizes, head_name, sizes.vocabulary, sizes.hidden, rows));
  if (sizes.tie_embeddings) list.back() = embedding_parameter(sizes);
  return list;
}

TensorShape stream(const Sizes& sizes, const BatchShape& batch) {
  return {{batch.micro_batch, batch.sequence_length, sizes.hidden}, batch.activation};
}

// The bytes of two statistics a row, fp32.
std::int64_t norm_bytes(std::int64_t tokens) {
  return 2 * tokens * 4;
}

}  // namespace

EmbeddingLayer::EmbeddingLayer(const Sizes& sizes) : weight_{embedding_parameter(sizes), {}} {}

LayerInfo EmbeddingLayer::describe(const Sizes& sizes, const BatchShape& batch) {
  return {"embedding", {embedding_parameter(sizes)}, {stream(sizes, batch)}, 0.0, 0};
}

LayerOutput EmbeddingLayer::forward(const Tensors& /*input*/, const MicroBatch& batch) {
  return {{embedding_rows(weight_.tensor, batch.tokens)}, {}, {}};
}

BlockLayer::BlockLayer(const Sizes& sizes, int block, ModelContext& context, std::shared_ptr<RotaryTable> rotary)
    : sizes_(sizes), context_(context), rotary_(std::move(rotary)) {
  for (ParameterInfo& info : block_parameters(sizes, block)) parameters_.push_back({std::move(info), {}});
}

// FLOPs: the four weights, and scores and weighted sums over the whole square of positions, by the usual convention
// (half of them lie behind the mask). Bytes: statistics and results of both norms, packed q, k and v, attention's
// result and its fp32 log-sums, and the MLP's inner activations before and after the GELU, if not made again.
LayerInfo BlockLayer::describe(const Sizes& sizes, int block, const BatchShape& batch) {
  const std::int64_t tokens = batch.micro_batch * batch.sequence_length;
  const double weights = static_cast<double>(4 * sizes.hidden * sizes.hidden + 2 * sizes.hidden * sizes.intermediate);
  const double scores = 2.0 * static_cast<double>(batch.sequence_length * sizes.hidden);
  const auto width = static_cast<std::int64_t>(c10::elementSize(batch.activation));
  LayerInfo info;
  info.name = "block " + std::to_string(block);
  info.parameters = block_parameters(sizes, block);
  info.outputs = {stream(sizes, batch)};
  info.forward_flops = 2.0 * static_cast<double>(tokens) * (weights + scores);
  const bool keeps_mlp = sizes.mlp_chunk == 0 || sizes.mlp_chunk >= tokens;
  info.activation_bytes = 2 * norm_bytes(tokens) +
                          tokens * width * (6 * sizes.hidden + (keeps_mlp ? 2 * sizes.intermediate : 0)) +
                          tokens * sizes.heads * 4;
  if (!sizes.parallel_residual) info.activation_bytes += tokens * width * sizes.hidden;  // what the second norm reads
  return info;
}

std::vector<Parameter*> BlockLayer::parameters() {
  std::vector<Parameter*> list;
  for (Parameter& parameter : parameters_) list.push_back(&parameter);
  return list;
}

at::Tensor BlockLayer::attention_part(const at::Tensor& x, std::int64_t samples) {
  const auto tensor = [this](BlockParameter which) -> const at::Tensor& { return parameters_[which].tensor; };
  const at::Tensor normed = layer_norm(x, tensor(InputNormWeight), tensor(InputNormBias), sizes_.layer_norm_epsilon);
  const at::Tensor qkv = context_.linear(normed, parameters_[QkvWeight], &parameters_[QkvBias]);
  const Heads heads = split_heads(qkv, samples, sizes_.heads, *rotary_);
  const at::Tensor mixed = attention(heads.query, heads.key, heads.value);
  return context_.linear(mixed.transpose(1, 2).reshape(x.sizes()), parameters_[DenseWeight], &parameters_[DenseBias]);
}

at::Tensor BlockLayer::mlp_part(const at::Tensor& x) {
  const auto tensor = [this](BlockParameter which) -> const at::Tensor& { return parameters_[which].tensor; };
  const at::Tensor normed = layer_norm(x, tensor(MlpNormWeight), tensor(MlpNormBias), sizes_.layer_norm_epsilon);
  return by_rows(normed, sizes_.mlp_chunk, tensor(UpWeight), [this](const at::Tensor& rows) {
    const at::Tensor up = context_.linear(rows, parameters_[UpWeight], &parameters_[UpBias]);
    return context_.linear(at::gelu(up), parameters_[DownWeight], &parameters_[DownBias]);
  });
}

// Rows are tokens: [micro-batch * sequence, hidden].
LayerOutput BlockLayer::forward(const Tensors& input, const MicroBatch& /*batch*/) {
  const at::Tensor x = input[0].reshape({-1, sizes_.hidden});
  at::Tensor y = attention_part(x, input[0].size(0)) + x;
  y = sizes_.parallel_residual ? y.add_(mlp_part(x)) : y + mlp_part(y);
  return {{y.view(input[0].sizes())}, {}, {}};
}

HeadLayer::HeadLayer(const Sizes& sizes) : sizes_(sizes) {
  std::vector<ParameterInfo> list = head_parameters(sizes);
  norm_weight_.info = std::move(list[0]);
  norm_bias_.info = std::move(list[1]);
  weight_.info = std::move(list[2]);
}

LayerInfo HeadLayer::describe(const Sizes& sizes, const BatchShape& batch) {
  const std::int64_t tokens = batch.micro_batch * batch.sequence_length;
  LayerInfo info;
  info.name = "head";
  info.parameters = head_parameters(sizes);
  info.forward_flops = 2.0 * static_cast<double>(tokens) * static_cast<double>(sizes.hidden * sizes.vocabulary);
  info.activation_bytes =
      norm_bytes(tokens) + linear_cross_entropy_bytes(tokens, sizes.hidden, sizes.vocabulary, batch.activation);
  return info;
}

LayerOutput HeadLayer::forward(const Tensors& input, const MicroBatch& batch) {
  const at::Tensor x = input[0].reshape({-1, sizes_.hidden});
  const at::Tensor normed = layer_norm(x, norm_weight_.tensor, norm_bias_.tensor, sizes_.layer_norm_epsilon);
  LayerOutput output;
  output.loss_sum =
      linear_cross_entropy(normed, weight_.tensor, batch.targets.reshape({-1}), sizes_.loss_chunk, batch.loss_seed);
  return output;
}

}  // namespace strata::gpt_neox
