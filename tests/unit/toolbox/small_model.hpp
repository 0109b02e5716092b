// A model of three small layers.
#pragma once
#include <ATen/ops/gelu.h>
#include <strata/toolbox/embedding.hpp>
#include <strata/toolbox/linear_cross_entropy.hpp>
#include <strata/toolbox/sequential_model.hpp>

#include <memory>
#include <vector>

inline constexpr std::int64_t vocabulary = 11;
inline constexpr std::int64_t width = 6;

class OneMatrix : public strata::Layer {
 public:
  OneMatrix(strata::ModelContext& context, std::int64_t rows, std::int64_t columns)
      : context_(context), weight_{{"weight", {rows, columns}, strata::Initializer::normal(0.0, 0.3)}, {}} {}
  std::vector<strata::Parameter*> parameters() override { return {&weight_}; }

 protected:
  strata::ModelContext& context_;
  strata::Parameter weight_;
};

struct EmbeddingLayer : OneMatrix {
  using OneMatrix::OneMatrix;
  strata::LayerOutput forward(const strata::Tensors&, const strata::MicroBatch& batch) override {
    return {{strata::embedding_rows(weight_.tensor, batch.tokens)}, {}, {}};
  }
};

struct HiddenLayer final : OneMatrix {
  using OneMatrix::OneMatrix;
  strata::LayerOutput forward(const strata::Tensors& input, const strata::MicroBatch&) override {
    return {{input[0].add(at::gelu(context_.linear(input[0], weight_)))}, {}, {}};
  }
};

struct HeadLayer : OneMatrix {
  using OneMatrix::OneMatrix;
  strata::LayerOutput forward(const strata::Tensors& input, const strata::MicroBatch& batch) override {
    const at::Tensor x = input[0].flatten(0, 1);
    if (batch.asked_rows.defined()) return {{}, {}, {}, strata::linear_logits(x, weight_.tensor, batch.asked_rows)};
    return {{}, strata::linear_cross_entropy(x, weight_.tensor, batch.targets.flatten()).loss, {}};
  }
};

inline std::unique_ptr<strata::SequentialModel> small_model() {
  auto model = std::make_unique<strata::SequentialModel>(vocabulary);
  model->add<EmbeddingLayer>("embedding", vocabulary, width);
  model->add<HiddenLayer>("hidden", width, width);
  model->add<HeadLayer>("head", vocabulary, width);
  return model;
}
