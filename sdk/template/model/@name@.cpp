// A small character-level (byte) model: an embedding, layers with a residual connection, and a head that computes the
// loss. A model defines its list of layers and what each computes; <strata/model.hpp> and
// <strata/toolbox/sequential_model.hpp> are the contracts. A layer is the unit of gathering, checkpointing and pipeline
// cuts. It allocates nothing: it describes its parameters, and the engine allocates their memory.
#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/toolbox/embedding.hpp>
#include <strata/toolbox/linear_cross_entropy.hpp>
#include <strata/toolbox/sequential_model.hpp>

#include <string>
#include <vector>

namespace {

using namespace strata;

#define MODEL_OPTIONS(OPTION)                                                                             \
  OPTION(integer, width, 32, "min=1,max=65536", "elements", "Width of the activations between layers.")   \
  OPTION(integer, layers, 2, "min=0,max=10000", "layers", "Number of layers between embedding and head.") \
  OPTION(number, z_loss, 0, "min=0,max=1", "", "Weight of the z-loss, which keeps the logits small; 0: no z-loss.")
STRATA_OPTIONS(Options, MODEL_OPTIONS)

struct OneMatrix : Layer {  // what the three layers share
  OneMatrix(ModelContext& given, std::int64_t rows, std::int64_t columns)
      : context(given), weight{{"weight", {rows, columns}, Initializer::normal(0.0, 0.1)}, {}} {}
  std::vector<Parameter*> parameters() override { return {&weight}; }

  ModelContext& context;
  Parameter weight;
};

struct Embedding final : OneMatrix {
  using OneMatrix::OneMatrix;
  LayerOutput forward(const Tensors& /*input*/, const MicroBatch& batch) override {
    return {{embedding_rows(weight.tensor, batch.tokens)}};
  }
};

struct Hidden final : OneMatrix {
  using OneMatrix::OneMatrix;
  // Matmuls go through the context, because the precision plugin decides how they run.
  LayerOutput forward(const Tensors& input, const MicroBatch& /*batch*/) override {
    return {{input[0] + at::gelu(context.linear(input[0], weight))}};
  }
};

struct Head final : OneMatrix {
  Head(ModelContext& given, std::int64_t rows, std::int64_t columns, double z_loss)
      : OneMatrix(given, rows, columns), terms{.z_loss = z_loss, .largest_logit = true} {}
  // Returns the SUM of the losses; the engine divides by the tokens of the global batch. The z-loss is an auxiliary
  // loss, a SUM too. The largest logit is a statistic: metrics report its maximum over the step. Where `strata sample`
  // requests the next tokens of some rows, returns their logits instead.
  LayerOutput forward(const Tensors& input, const MicroBatch& batch) override {
    LayerOutput output;
    const at::Tensor x = input[0].flatten(0, 1);
    if (batch.asked_rows.defined()) {
      output.logits = linear_logits(x, weight.tensor, batch.asked_rows);
      return output;
    }
    const TokenLoss loss = linear_cross_entropy(x, weight.tensor, batch.targets.flatten(), terms, batch.loss_seed);
    output.loss_sum = loss.loss;
    output.auxiliary_loss = loss.auxiliary_loss;
    output.statistics = {{{"largest_logit", StatisticKind::Maximum}, loss.largest_logit}};
    return output;
  }

  LossTerms terms;
};

class Characters final : public SequentialModel {
 public:
  Characters(PluginContext& /*context*/, const Options& options) : SequentialModel(characters) {
    add<Embedding>("embedding", characters, options.width);
    for (std::int64_t layer = 0; layer < options.layers; ++layer)
      add<Hidden>("hidden_" + std::to_string(layer), options.width, options.width);
    add<Head>("head", characters, options.width, options.z_loss);
  }

 private:
  static constexpr std::int64_t characters = 256;
};

}  // namespace

STRATA_PLUGIN(Characters, Options, MODEL_OPTIONS)
