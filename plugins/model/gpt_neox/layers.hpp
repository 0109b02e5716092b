// The three kinds of layer of a GPT-NeoX. Parameters carry Hugging Face's names and layouts.
#pragma once
#include <strata/model.hpp>
#include <strata/toolbox/attention.hpp>

#include <memory>
#include <string>
#include <vector>

#include "sizes.hpp"

namespace strata::gpt_neox {

// Tokens to the residual stream [micro-batch, sequence, hidden].
class EmbeddingLayer final : public Layer {
 public:
  explicit EmbeddingLayer(const Sizes& sizes);
  static LayerInfo describe(const Sizes& sizes, const BatchShape& batch);
  std::vector<Parameter*> parameters() override { return {&weight_}; }
  LayerOutput forward(const Tensors& input, const MicroBatch& batch) override;

 private:
  Parameter weight_;
};

// x + attention(norm(x)) + mlp(norm(x)), or one after the other.
class BlockLayer final : public Layer {
 public:
  BlockLayer(const Sizes& sizes, int block, ModelContext& context, std::shared_ptr<RotaryTable> rotary);
  static LayerInfo describe(const Sizes& sizes, int block, const BatchShape& batch);
  std::vector<Parameter*> parameters() override;
  LayerOutput forward(const Tensors& input, const MicroBatch& batch) override;

 private:
  at::Tensor attention_part(const at::Tensor& x, std::int64_t samples);
  at::Tensor mlp_part(const at::Tensor& x);

  Sizes sizes_;
  ModelContext& context_;
  std::shared_ptr<RotaryTable> rotary_;
  std::vector<Parameter> parameters_;  // in the order of parameters()
};

// Final norm, projection to the vocabulary and cross entropy.
class HeadLayer final : public Layer {
 public:
  explicit HeadLayer(const Sizes& sizes);
  static LayerInfo describe(const Sizes& sizes, const BatchShape& batch);
  std::vector<Parameter*> parameters() override { return {&norm_weight_, &norm_bias_, &weight_}; }
  LayerOutput forward(const Tensors& input, const MicroBatch& batch) override;

 private:
  Sizes sizes_;
  Parameter norm_weight_;
  Parameter norm_bias_;
  Parameter weight_;
};

}  // namespace strata::gpt_neox
