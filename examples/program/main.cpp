// Trains three layers of its own to predict each token of a text from the one before it. program.yaml says the rest.
#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <strata/engine.hpp>
#include <strata/error.hpp>
#include <strata/toolbox/embedding.hpp>
#include <strata/toolbox/linear_cross_entropy.hpp>
#include <strata/toolbox/sequential_model.hpp>

#include <cstdio>

using namespace strata;

struct OneMatrix : Layer {  // a layer with one parameter
  OneMatrix(ModelContext& given, std::int64_t rows, std::int64_t columns)
      : context(given), weight{{"weight", {rows, columns}, Initializer::normal(0.0, 0.1)}, {}} {}
  std::vector<Parameter*> parameters() override { return {&weight}; }

  ModelContext& context;
  Parameter weight;
};

struct Embedding final : OneMatrix {
  using OneMatrix::OneMatrix;
  LayerOutput forward(const Tensors&, const MicroBatch& batch) override {
    return {{embedding_rows(weight.tensor, batch.tokens)}};
  }
};

struct Hidden final : OneMatrix {
  using OneMatrix::OneMatrix;
  LayerOutput forward(const Tensors& input, const MicroBatch&) override {
    return {{input[0] + at::gelu(context.linear(input[0], weight))}};
  }
};

struct Head final : OneMatrix {
  using OneMatrix::OneMatrix;
  LayerOutput forward(const Tensors& input, const MicroBatch& batch) override {
    return {{}, linear_cross_entropy(input[0].flatten(0, 1), weight.tensor, batch.targets.flatten()).loss};
  }
};

int main(int argc, char* argv[]) try {
  if (argc < 2) throw UserError("usage: program CONFIG [KEY=VALUE ...]");
  constexpr std::int64_t vocabulary = 257, width = 32;  // bytes, and one more token that ends a text
  auto model = std::make_unique<SequentialModel>(vocabulary);
  model->add<Embedding>("embedding", vocabulary, width);
  model->add<Hidden>("hidden", width, width);
  model->add<Head>("head", vocabulary, width);
  Engine engine = initialize(std::move(model), argv[1], {argv + 2, argv + argc});
  while (engine.steps_done() < engine.steps()) {
    for (const Batch& batch : engine.batches()) engine.backward(engine.forward(batch));
    engine.step();
  }
} catch (const Error& error) {
  std::fprintf(stderr, "program: %s\n", error.what());
  return error.exit_status();
}
