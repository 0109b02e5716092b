// What layers add to the loss: its gradients are those of one autograd graph in one process, at any layout.
#include <ATen/ops/empty.h>
#include <strata/fakes/model_context.hpp>
#include <strata/options.hpp>

#include "ranks.hpp"
#include "state/initial_values.hpp"

using namespace strata;

namespace {

// The sum of a value of each token over those whose targets count.
at::Tensor over_valid(const at::Tensor& values, const MicroBatch& batch) {
  return (values * batch.targets.ne(-100)).sum();
}

struct WeighedHidden final : OneMatrix {
  WeighedHidden(ModelContext& context, std::int64_t rows, std::int64_t columns) : OneMatrix(context, rows, columns) {
    weight_.info.linear_only = true;
  }
  LayerOutput forward(const Tensors& input, const MicroBatch& batch) override {
    const at::Tensor y = at::gelu(context_.linear(input[0], weight_));
    return {{input[0] + y}, {}, over_valid(y.square().sum(-1), batch) * 0.05};
  }
};

struct WeighedHead final : OneMatrix {
  using OneMatrix::OneMatrix;
  LayerOutput forward(const Tensors& input, const MicroBatch& batch) override {
    const at::Tensor logits = at::linear(input[0], weight_.tensor);
    const at::Tensor z = (logits - logits.log_softmax(-1)).select(-1, 0);
    return {
        {},
        linear_cross_entropy(input[0].flatten(0, 1), weight_.tensor, batch.targets.flatten(), {}, batch.loss_seed).loss,
        over_valid(z.square(), batch) * 0.02};
  }
};

struct WideHead final : OneMatrix {
  using OneMatrix::OneMatrix;
  LayerOutput forward(const Tensors& input, const MicroBatch& batch) override {
    return {{}, linear_cross_entropy(input[0].flatten(0, 1), weight_.tensor, batch.targets.flatten()).loss, input[0]};
  }
};

STRATA_NO_OPTIONS(WeighedOptions)

struct Weighed final : SequentialModel {
  Weighed() : SequentialModel(::vocabulary) {
    add<EmbeddingLayer>("embedding", ::vocabulary, width);
    add<WeighedHidden>("hidden", width, width);
    add<WeighedHead>("head", ::vocabulary, width);
  }
  Weighed(PluginContext&, const WeighedOptions&) : Weighed() {}
};

std::vector<ProgramPlugin> weighed() {
  return {program_plugin<Model, Weighed, WeighedOptions>("weighed", {Capability::SplittableBackward})};
}

constexpr std::uint64_t weights_seed = 7;

std::vector<std::string> weighed_settings(const Config& config, const std::vector<std::string>& more) {
  std::vector<std::string> settings{
      config.data(),         "model.plugin=weighed",    "train.global_batch=12",
      "train.micro_batch=2", "train.accumulation=auto", "train.seed=" + std::to_string(weights_seed),
      "train.clip=0",        "optimizer.plugin=sgd",    "learning_rate.base=1"};
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

// A step of descent at the rate 1.
struct Descended {
  double loss = 0.0;
  std::optional<double> auxiliary_loss;
  std::map<std::string, at::Tensor> weights;
};

Descended by_autograd(const std::vector<Batch>& batches, double weight_of_auxiliary) {
  const Weighed model;
  const fakes::LayersInOrder layers(model, {2, 5, at::kDouble}, at::kDouble);
  std::map<std::string, at::Tensor> parameters;
  for (const auto& layer : layers.layers())
    for (Parameter* parameter : layer->parameters()) {
      const at::Tensor values = at::empty({parameter->info.elements()}, at::kFloat);
      state::fill_initial_values(values, parameter->info, 0, weights_seed);
      parameter->tensor.detach().copy_(values.view(parameter->info.shape));
      parameters[parameter->info.name] = parameter->tensor;
    }
  at::Tensor loss, auxiliary;
  std::int64_t tokens = 0;
  for (const Batch& batch : batches) {
    const LayerOutput output = layers.forward({batch.tokens, batch.targets});
    loss = loss.defined() ? loss + output.loss_sum : output.loss_sum;
    auxiliary = auxiliary.defined() ? auxiliary + output.auxiliary_loss : output.auxiliary_loss;
    tokens += batch.targets.ne(-100).sum().item<std::int64_t>();
  }
  ((loss + auxiliary * weight_of_auxiliary) / tokens).backward();
  Descended found{(loss / tokens).item<double>(), (auxiliary / tokens).item<double>()};
  for (const auto& [name, tensor] : parameters) found.weights[name] = tensor.detach() - tensor.grad();
  return found;
}

std::map<std::string, at::Tensor> read_weights(const std::string& folder) {
  const Weighed model;
  std::vector<LayerInfo> layers;
  for (int layer = 0; layer < model.layers(); ++layer) layers.push_back(model.describe(layer, {2, 5}));
  const step::ValueSource source = checkpoint::SavedWeights(folder, "").source(model, layers);
  std::map<std::string, at::Tensor> weights;
  for (const LayerInfo& layer : layers)
    for (const ParameterInfo& info : layer.parameters) {
      const at::Tensor values = at::empty({info.elements()}, at::kFloat);
      source(info, 0, info.elements(), values);
      weights[info.name] = values.view(info.shape).to(at::kDouble);
    }
  return weights;
}

double largest_apart(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  double largest = 0.0;
  for (const auto& [name, tensor] : a) largest = std::max(largest, (tensor - b.at(name)).abs().max().item<double>());
  return largest;
}

struct Layout {
  int ranks = 1;
  std::vector<std::string> settings;
};

const std::vector<Layout> layouts{
    {1, {}},
    {1, {"activations.checkpoint=all"}},
    {2, {"partitioner.plugin=ddp"}},
    {3, {"partitioner.plugin=ddp", "activations.checkpoint=all"}},
    {2, {"partitioner.plugin=zero3", "activations.checkpoint=all"}},
    {3, {"partitioner.plugin=zero3"}},
    {2, {"parallel.pipeline=2", "scheduler.plugin=1f1b"}},
    {2, {"parallel.pipeline=2", "scheduler.plugin=1f1b", "activations.checkpoint=all"}},
    {2, {"parallel.pipeline=2", "scheduler.plugin=zero_bubble_h1"}},
    {4,
     {"parallel.pipeline=2", "scheduler.plugin=zero_bubble_h1", "partitioner.plugin=zero3",
      "activations.checkpoint=all"}},
};

}  // namespace

TEST_CASE("an auxiliary loss equals one autograd graph, in any layout") {
  const Layout layout = GENERATE(from_range(layouts));
  const bool some_ignored = GENERATE(false, true);
  const Config config;
  std::mutex mutex;
  std::vector<Batch> all;
  std::vector<StepResult> results;
  on_engines(
      layout.ranks, config.file(), weighed_settings(config, layout.settings),
      [&](const LocalRank& rank) {
        Engine& engine = rank.engine;
        std::vector<Batch> mine = engine.batches();
        for (std::size_t k = 0; k < mine.size() && some_ignored; ++k)  // another number on each rank
          mine[k]
              .targets.narrow(1, 0, (static_cast<int>(k) * engine.data_ranks() + engine.data_rank()) % 4)
              .fill_(-100);
        const StepResult result = engine.train_batch(mine);
        engine.export_weights(config / "weights");
        const std::lock_guard lock(mutex);
        results.push_back(result);
        if (rank.run.session().place().at(Axis::Pipeline) == 0) all.insert(all.end(), mine.begin(), mine.end());
      },
      weighed());
  CAPTURE(layout.ranks, layout.settings, some_ignored);
  REQUIRE(all.size() == 6);
  const Descended expected = by_autograd(all, 1.0);
  for (const StepResult& result : results) {
    CHECK(result.loss == Approx(expected.loss).epsilon(2e-6));
    REQUIRE(result.auxiliary_loss);
    CHECK(*result.auxiliary_loss == Approx(*expected.auxiliary_loss).epsilon(2e-6));
  }
  const std::map<std::string, at::Tensor> weights = read_weights(config / "weights");
  CHECK(largest_apart(expected.weights, weights) < 1e-6);
  CHECK(largest_apart(by_autograd(all, 0.99).weights, weights) > 1e-5);  // the bound finds a hundredth
}

TEST_CASE("a validation gives the mean auxiliary loss, without its padding") {
  const Config config;
  const auto validated = [&](const Layout& layout) {
    std::vector<std::string> more = layout.settings;
    more.push_back("validation.path=" + config.tokens());
    report::ValidationResult found;
    on_engines(
        layout.ranks, config.file(), weighed_settings(config, more),
        [&](const LocalRank& rank) {
          const report::ValidationResult result = rank.run.validate().value();
          if (rank.engine.rank() == 0) found = result;
        },
        weighed());
    CHECK(found.samples % 12 != 0);
    return found;
  };
  const report::ValidationResult one = validated(layouts.front());
  REQUIRE(one.auxiliary_loss);
  CHECK(*one.auxiliary_loss > 0.0);
  for (const Layout& layout : layouts) {
    CAPTURE(layout.ranks, layout.settings);
    const report::ValidationResult found = validated(layout);
    CHECK(found.loss == Approx(one.loss).epsilon(2e-6));
    CHECK(found.auxiliary_loss.value() == Approx(*one.auxiliary_loss).epsilon(2e-6));
  }
}

TEST_CASE("a model without an auxiliary loss reports none, and NaN is refused") {
  const Config config;
  Engine plain = initialize(small_model(), config.file());
  CHECK_FALSE(plain.train_batch(random_batches(1)).auxiliary_loss);
  auto model = std::make_unique<SequentialModel>(vocabulary);
  model->add<EmbeddingLayer>("embedding", vocabulary, width);
  model->add<WideHead>("head", vocabulary, width);
  CHECK_THAT(
      error_of<Bug>([&] { initialize(std::move(model), config.file()).train_batch(random_batches(1)); }),
      Contains("the auxiliary loss of head has 3 dimensions") && Contains("a sum over the micro-batch's tokens"));
}
