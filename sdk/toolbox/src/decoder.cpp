#include <strata/toolbox/decoder.hpp>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/gelu.h>
#include <strata/error.hpp>
#include <strata/group.hpp>
#include <strata/toolbox/by_rows.hpp>
#include <strata/toolbox/dropout.hpp>
#include <strata/toolbox/embedding.hpp>
#include <strata/toolbox/layer_norm.hpp>
#include <strata/toolbox/rms_norm.hpp>
#include <strata/toolbox/swiglu.hpp>
#include <strata/toolbox/tensor_parallel.hpp>

#include <algorithm>
#include <set>
#include <utility>

#include "decoder_costs.hpp"
#include "decoder_parameters.hpp"

namespace strata {
namespace {

using Shape = std::shared_ptr<const DecoderShape>;

// Which of a layer's draws: no two use the same random bits.
enum Draw : std::int64_t { EmbeddingDraw, AttentionDraw, AttentionOutputDraw, MlpDraw };

// A layer's parameters and their roles, taken one after the other in their order.
class DecoderLayer : public Layer {
 public:
  DecoderLayer(Shape shape, ModelContext& context, std::vector<ParameterInfo> infos)
      : shape_(std::move(shape)), context_(context) {
    for (ParameterInfo& info : infos) parameters_.push_back({std::move(info), {}});
  }
  std::vector<Parameter*> parameters() override {
    std::vector<Parameter*> list;
    for (Parameter& parameter : parameters_) list.push_back(&parameter);
    return list;
  }

 protected:
  const Parameter* next() { return &parameters_.at(taken_++); }
  Weight next_linear(bool bias) {
    const Parameter* const weight = next();
    return {weight, bias ? next() : nullptr};
  }
  Weight next_norm(BlockShape::Norm norm) { return next_linear(norm == BlockShape::Norm::Layer); }

  at::Tensor normed(const at::Tensor& x, const Weight& norm) const {
    if (norm.bias == nullptr) return rms_norm(x, norm.weight->tensor, shape_->norm_epsilon);
    return layer_norm(x, norm.weight->tensor, norm.bias->tensor, shape_->norm_epsilon);
  }
  // Of rows of the stream.
  at::Tensor dropped(const at::Tensor& x, double probability, const MicroBatch& batch, Draw draw) const {
    if (probability == 0.0 || !batch.training) return x;
    const BatchShape& shape = context_.batch();
    const std::int64_t first = batch.sample * shape.sequence_length +
                               (shape.sequence_parallel ? context_.tensor_group()->rank() * shape.stream_rows() : 0);
    return dropout(x, probability, batch.random_key, draw, first * x.size(1));
  }

  Shape shape_;
  ModelContext& context_;

 private:
  std::vector<Parameter> parameters_;
  std::size_t taken_ = 0;
};

class EmbeddingLayer final : public DecoderLayer {
 public:
  EmbeddingLayer(const Shape& shape, ModelContext& context)
      : DecoderLayer(shape, context, embedding_parameters(*shape)),
        weight_(next()),
        positions_(shape->learned_positions ? next() : nullptr) {}

  LayerOutput forward(const Tensors& /*input*/, const MicroBatch& batch) override {
    at::Tensor x = vocabulary_embedding(*weight_, batch.tokens, context_);
    if (positions_ != nullptr) {
      const at::Tensor numbers =
          at::arange(context_.batch().rows(), batch.tokens.options()).remainder(batch.tokens.size(1)).unsqueeze(1);
      x = x + embedding_rows(positions_->tensor, stream_rows_of(numbers, context_).squeeze(1));
    }
    return {{dropped(x, shape_->embedding_dropout, batch, EmbeddingDraw)}, {}, {}};
  }

 private:
  const Parameter *weight_, *positions_;
};

class BlockLayer final : public DecoderLayer {
 public:
  BlockLayer(const Shape& shape, int number, ModelContext& context, std::shared_ptr<RotaryTable> rotary)
      : DecoderLayer(shape, context, block_parameters(*shape, number)),
        block_(shape->blocks.at(static_cast<std::size_t>(number))),
        rotary_(std::move(rotary)) {
    attention_norm_ = next_norm(block_.norm);
    mlp_norm_ = next_norm(block_.norm);
    const int projections = shape->projections == DecoderShape::Projections::Apart ? 3 : 1;
    for (int i = 0; i < projections; ++i) projections_.push_back(next_linear(shape->projection_bias));
    attention_output_ = next_linear(shape->attention_output_bias);
    if (BlockShape::is_gated(block_.mlp)) up_.push_back(next_linear(shape->mlp_bias));
    up_.push_back(next_linear(shape->mlp_bias));
    down_ = next_linear(shape->mlp_bias);
    if (shape->mlp_chunk > 0 && context.batch().sequence_parallel)
      throw UserError(
          "model mlp_chunk is {} and parallel.sequence is true, which gathers the MLP's tokens at once; leave one of "
          "them out",
          shape->mlp_chunk);
  }

  LayerOutput forward(const Tensors& input, const MicroBatch& batch) override {
    const at::Tensor& x = input[0];
    const at::Tensor attended = attention_part(normed(x, attention_norm_), batch);
    if (block_.parallel_residual) {  // one sum of three in the memory of the first
      at::Tensor y = attended + x;
      return {{y.add_(mlp_part(normed(x, mlp_norm_), batch))}, {}, {}};
    }
    const at::Tensor y = attended + x;
    return {{y + mlp_part(normed(y, mlp_norm_), batch)}, {}, {}};
  }

 private:
  Heads heads_of(const at::Tensor& x, std::int64_t samples) {
    const Tensors products = context_.column_linear(x, projections_);
    const std::int64_t size = shape_->head_size;
    if (shape_->projections == DecoderShape::Projections::ByHead)
      return split_heads(products[0], samples, products[0].size(1) / (3 * size), *rotary_);
    Tensors parts = products;
    if (shape_->projections == DecoderShape::Projections::ByKind) parts = products[0].chunk(3, 1);
    const bool apart = shape_->projections == DecoderShape::Projections::Apart;
    const auto heads = [&](const at::Tensor& part, bool rotates) {
      if (rotates && apart && rotary_->dimensions() > 0) return rotated_heads(part, samples, size, *rotary_);
      return part.reshape({samples, part.size(0) / samples, part.size(1) / size, size}).transpose(1, 2);
    };
    return {heads(parts[0], true), heads(parts[1], true), heads(parts[2], false)};
  }

  at::Tensor attention_part(const at::Tensor& x, const MicroBatch& batch) {
    const std::int64_t samples = batch.tokens.size(0);
    const Heads heads = heads_of(x, samples);
    AttentionDropout drop;
    if (batch.training && shape_->attention_dropout > 0.0) {
      const std::int64_t here = heads.query.size(1);
      const std::int64_t first = context_.tensor_group() == nullptr ? 0 : context_.tensor_group()->rank() * here;
      drop = {shape_->attention_dropout, batch.random_key, AttentionDraw, batch.sample, first, shape_->heads};
    }
    const at::Tensor mixed = attention(heads.query, heads.key, heads.value, drop);
    const at::Tensor y =
        context_.row_linear(mixed.transpose(1, 2).reshape({context_.batch().rows(), -1}), attention_output_);
    return dropped(y, shape_->hidden_dropout, batch, AttentionOutputDraw);
  }

  at::Tensor mlp_part(const at::Tensor& x, const MicroBatch& batch) {
    const at::Tensor y = by_rows(x, shape_->mlp_chunk, down_.weight->tensor, [this](const at::Tensor& rows) {
      const Tensors up = context_.column_linear(rows, up_);
      return context_.row_linear(activated(up), down_);
    });
    return dropped(y, shape_->hidden_dropout, batch, MlpDraw);
  }

  at::Tensor activated(const Tensors& up) const {
    switch (block_.mlp) {
      case BlockShape::Mlp::Gelu:
        return at::gelu(up[0]);
      case BlockShape::Mlp::GeluByTanh:
        return at::gelu(up[0], "tanh");
      case BlockShape::Mlp::SwiGlu:
        return swiglu(up[0], up[1]);
    }
    throw Bug("unknown kind of MLP");
  }

  const BlockShape& block_;  // of shape_
  std::shared_ptr<RotaryTable> rotary_;
  Weight attention_norm_, mlp_norm_, attention_output_, down_;
  std::vector<Weight> projections_, up_;
};

// Final norm, projection to the vocabulary and cross entropy, or logits where they are asked for.
class HeadLayer final : public DecoderLayer {
 public:
  HeadLayer(const Shape& shape, ModelContext& context)
      : DecoderLayer(shape, context, head_parameters(*shape)), norm_(next_norm(shape->final_norm)), weight_(next()) {}

  LayerOutput forward(const Tensors& input, const MicroBatch& batch) override {
    LayerOutput output;
    const at::Tensor x = normed(input[0], norm_);
    if (batch.asked_rows.defined()) {
      output.logits = vocabulary_logits(x, *weight_, batch, context_);
      return output;
    }
    const TokenLoss loss = vocabulary_cross_entropy(x, *weight_, batch, shape_->loss, context_);
    output.loss_sum = loss.loss;
    output.auxiliary_loss = loss.auxiliary_loss;
    if (loss.largest_logit.defined()) output.statistics.push_back({largest_logit_info, loss.largest_logit});
    return output;
  }

 private:
  Weight norm_;
  const Parameter* weight_;
};

// Throws UserError for sizes that tensor-parallel ranks cannot share equally.
void check_shared(const DecoderShape& shape, int ranks) {
  for (const auto& [option, size] :
       {std::pair("heads", shape.heads), std::pair("key_value_heads", shape.key_value_heads),
        std::pair("intermediate_size", shape.intermediate)})
    if (size % ranks != 0)
      throw UserError(
          "parallel.tensor is {}, and the model has {} {}, which is not divisible by {}; set parallel.tensor to a "
          "divisor of it",
          ranks, option, size, ranks);
}

// Throws UserError for samples longer than the shortest window, since attention() has none.
void check_window(std::int64_t window, std::int64_t tokens) {
  if (window > 0 && tokens > window)
    throw UserError(
        "model.seq_len is {}, and config.json has sliding_window {}, which Strata does not support; set model.seq_len "
        "to at most {}",
        tokens, window, window);
}

// Returns a table for each block; blocks of equal rotation share one.
std::vector<std::shared_ptr<RotaryTable>> rotary_tables(const DecoderShape& shape) {
  std::vector<std::pair<RotaryShape, std::shared_ptr<RotaryTable>>> different;
  std::vector<std::shared_ptr<RotaryTable>> tables;
  for (const BlockShape& block : shape.blocks) {
    const RotaryShape& rotary = block.rotary;
    auto known = std::ranges::find(different, rotary, [](const auto& one) { return one.first; });
    if (known == different.end())
      known = different.insert(known, {rotary, std::make_shared<RotaryTable>(rotary.dimensions(shape.head_size),
                                                                             rotary.base, rotary.scaling)});
    tables.push_back(known->second);
  }
  return tables;
}

}  // namespace

Decoder::Decoder(DecoderShape shape) {
  shape.check();
  rotary_ = rotary_tables(shape);
  for (const BlockShape& block : shape.blocks)
    if (block.window > 0) window_ = window_ == 0 ? block.window : std::min(window_, block.window);
  shape_ = std::make_shared<const DecoderShape>(std::move(shape));
}

LayerInfo Decoder::describe(int layer, const BatchShape& batch) const {
  strata_check(layer >= 0 && layer < layers(), "a layer's number is below layers()");
  check_shared(*shape_, batch.tensor_ranks);
  check_window(window_, batch.sequence_length);
  if (layer == 0) return describe_embedding(*shape_, batch);
  return layer == layers() - 1 ? describe_head(*shape_, batch) : describe_block(*shape_, layer - 1, batch);
}

std::unique_ptr<Layer> Decoder::build(int layer, ModelContext& context) const {
  strata_check(layer >= 0 && layer < layers(), "a layer's number is below layers()");
  if (layer == 0) return std::make_unique<EmbeddingLayer>(shape_, context);
  if (layer == layers() - 1) return std::make_unique<HeadLayer>(shape_, context);
  return std::make_unique<BlockLayer>(shape_, layer - 1, context, rotary_.at(static_cast<std::size_t>(layer) - 1));
}

CheckpointNames Decoder::checkpoint_names() const {
  CheckpointNames names;
  std::set<std::string> own;
  for (int layer = 0; layer < layers(); ++layer)
    for (const ParameterInfo& info : describe(layer, {}).parameters)
      if (own.insert(info.name).second) names.names.emplace_back(info.name, info.name);
  const std::string& base = shape_->names.base;
  for (const std::string& name : own)
    if (!base.empty() && name.starts_with(base)) names.names.emplace_back(name, name.substr(base.size()));
  if (shape_->tie_embeddings)
    names.names.emplace_back(shape_->names.embedding + ".weight", shape_->names.head + ".weight");
  return names;
}

}  // namespace strata
