// A program's side of the engine: three small layers, a config and batches.
#pragma once
#include <ATen/ops/gelu.h>
#include <ATen/ops/tensor.h>
#include <strata/engine.hpp>
#include <strata/error.hpp>
#include <strata/toolbox/embedding.hpp>
#include <strata/toolbox/linear_cross_entropy.hpp>
#include <strata/toolbox/sequential_model.hpp>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "unit/data/scratch.hpp"

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

struct EmbeddingLayer final : OneMatrix {
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

struct HeadLayer final : OneMatrix {
  using OneMatrix::OneMatrix;
  strata::LayerOutput forward(const strata::Tensors& input, const strata::MicroBatch& batch) override {
    return {{}, strata::linear_cross_entropy(input[0].flatten(0, 1), weight_.tensor, batch.targets.flatten()), {}};
  }
};

inline std::unique_ptr<strata::SequentialModel> small_model() {
  auto model = std::make_unique<strata::SequentialModel>(vocabulary);
  model->add<EmbeddingLayer>("embedding", vocabulary, width);
  model->add<HiddenLayer>("hidden", width, width);
  model->add<HeadLayer>("head", vocabulary, width);
  return model;
}

// A config file, and a token file of 2000 tokens that it may name.
class Config {
 public:
  explicit Config(const std::string& more = "") {
    std::mt19937 draw(3);
    std::string tokens;
    for (int i = 0; i < 2000; ++i) tokens += {static_cast<char>(draw() % vocabulary), '\0'};
    write_file(folder_ / "tokens.bin", tokens);
    write_file(file(),
               "device: cpu\nmodel: {seq_len: 5}\ntrain: {steps: 20, micro_batch: 2, accumulation: 3}\nlearning_rate: "
               "{base: 0.05}\n" +
                   more);
  }
  std::string file() const { return folder_ / "config.yaml"; }
  std::string tokens() const { return folder_ / "tokens.bin"; }
  std::string data() const { return "data.path=" + tokens(); }
  std::string operator/(const std::string& name) const { return folder_ / name; }

 private:
  ScratchFolder folder_;
};

// int64 [2, 5]; every `ignored`-th target counts for nothing.
inline strata::Batch random_batch(unsigned seed, int ignored = 0) {
  std::mt19937 draw(seed);
  std::vector<std::int64_t> tokens(10), targets(10);
  for (std::int64_t& token : tokens) token = draw() % vocabulary;
  for (std::int64_t& target : targets) target = draw() % vocabulary;
  for (std::size_t i = 0; ignored > 0 && i < targets.size(); i += static_cast<std::size_t>(ignored)) targets[i] = -100;
  return {at::tensor(tokens, at::TensorOptions().dtype(at::kLong)).view({2, 5}),
          at::tensor(targets, at::TensorOptions().dtype(at::kLong)).view({2, 5})};
}

inline std::vector<strata::Batch> random_batches(unsigned seed, int count = 3) {
  std::vector<strata::Batch> batches;
  for (int i = 0; i < count; ++i) batches.push_back(random_batch(seed + static_cast<unsigned>(i)));
  return batches;
}

// One step, micro-batch by micro-batch.
inline strata::StepResult step_in_parts(strata::Engine& engine, const std::vector<strata::Batch>& batches) {
  for (const strata::Batch& batch : batches) engine.backward(engine.forward(batch));
  return engine.step();
}
