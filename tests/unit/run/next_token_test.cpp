// What the model says of a text's next token, on every layout.
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <strata/fakes/model_context.hpp>

#include <map>

#include "ranks.hpp"
#include "state/initial_values.hpp"

using namespace strata;

namespace {

const std::vector<std::int64_t> text{3, 1, 4, 1};

struct LaidOut {
  int ranks;
  std::vector<std::string> settings;
};

// What rank 0 is told of the token after the text; the other ranks are told the same bits. `check` is called on each.
at::Tensor told_on(const LaidOut& layout, std::vector<std::string> settings, const std::vector<ProgramPlugin>& plugins,
                   const std::function<void(Engine& engine, const at::Tensor& logits)>& check = {}) {
  const Config config;
  settings.insert(settings.end(), layout.settings.begin(), layout.settings.end());
  std::map<int, at::Tensor> told;
  std::mutex mutex;
  on_engines(
      layout.ranks, config.file(), settings,
      [&](const LocalRank& rank) {
        const at::Tensor logits = rank.engine.next_token_logits(text);
        if (check) check(rank.engine, logits);
        const std::lock_guard lock(mutex);
        told[rank.engine.rank()] = logits;
      },
      plugins);
  for (const auto& [rank, logits] : told) CHECK(at::equal(logits, told.at(0)));
  return told.at(0);
}

at::Tensor by_hand(std::uint64_t seed) {
  const auto model = small_model();
  const fakes::LayersInOrder layers(*model, {1, std::ssize(text), at::kDouble}, at::kDouble);
  std::vector<at::Tensor> weights;
  for (const auto& layer : layers.layers()) {
    const ParameterInfo& info = layer->parameters().at(0)->info;
    const at::Tensor values = at::empty({info.elements()}, at::kFloat);
    state::fill_initial_values(values, info, 0, seed);
    weights.push_back(values.view(info.shape).to(at::kDouble));
  }
  const at::Tensor x = weights[0][text.back()];
  return at::matmul(weights[2], x + at::gelu(at::matmul(weights[1], x)));
}

// A batch whose first sample is the text, of which the last target counts.
Batch with_target(std::int64_t target, const Engine& engine) {
  const std::vector<std::int64_t> shape{engine.micro_batch(), engine.seq_len()};
  Batch batch{at::full(shape, 5, at::kLong), at::full(shape, -100, at::kLong)};
  for (std::int64_t i = 0; i < std::ssize(text); ++i) batch.tokens[0][i] = text[static_cast<std::size_t>(i)];
  batch.targets[0][std::ssize(text) - 1] = target;
  return batch;
}

// Gives the loss alone, or logits of another size.
struct MuteHead final : OneMatrix {
  MuteHead(ModelContext& context, std::int64_t rows, std::int64_t columns, std::int64_t given)
      : OneMatrix(context, rows, columns), given_(given) {}
  LayerOutput forward(const Tensors& input, const MicroBatch& batch) override {
    LayerOutput output;
    output.loss_sum = linear_cross_entropy(input[0].flatten(0, 1), weight_.tensor, batch.targets.flatten()).loss;
    if (given_ > 0) output.logits = at::full({1, given_}, 0.5);
    return output;
  }
  std::int64_t given_;
};

Engine mute_engine(const Config& config, std::int64_t given) {
  auto model = std::make_unique<SequentialModel>(vocabulary);
  model->add<EmbeddingLayer>("embedding", vocabulary, width);
  model->add<MuteHead>("mute_head", vocabulary, width, given);
  return initialize(std::move(model), config.file());
}

}  // namespace

TEST_CASE("the logits equal a plain computation's on every rank of any layout") {
  const std::vector<LaidOut> layouts{
      {1, {}},
      {3, {"partitioner.plugin=zero3"}},
      {2, {"parallel.pipeline=2", "scheduler.plugin=1f1b"}},
      {4, {"parallel.pipeline=2", "scheduler.plugin=1f1b", "partitioner.plugin=zero3", "step_policy=delayed"}}};
  for (const LaidOut& layout : layouts) {
    CAPTURE(layout.ranks);
    const at::Tensor told = told_on(layout, {"train.seed=8"}, {});
    CHECK(told.sizes() == at::IntArrayRef{vocabulary});
    CHECK((told - by_hand(8)).abs().max().item<double>() < 1e-6);
  }
}

// The vocabulary is odd. The loss is another computation, over the vocabulary of all ranks by sums of its parts.
TEST_CASE("the logits give the loss of any next token, in any layout") {
  const std::string precision = GENERATE("fp32", "bf16"), tied = GENERATE("true", "false");
  const std::vector<std::string> settings{
      "model.plugin=gpt2",    "model.hidden_size=24",         "model.layers=3",
      "model.heads=6",        "model.initializer_range=0.3",  "model.tie_embeddings=" + tied,
      "model.vocabulary=101", "precision.plugin=" + precision};
  const std::vector<LaidOut> layouts{
      {1, {}},
      {3, {"parallel.tensor=3", "parallel.sequence=true", "partitioner.plugin=zero2"}},
      {4, {"parallel.tensor=2", "parallel.sequence=true", "partitioner.plugin=zero3", "activations.checkpoint=all"}},
      {4, {"parallel.tensor=2", "parallel.pipeline=2", "scheduler.plugin=1f1b"}},
      {2, {"parallel.pipeline=2", "scheduler.plugin=zero_bubble_v"}}};  // the last layer is on the first stage
  const ProgramPlugin other{
      PluginKind::Model, "other", [](PluginContext&) -> std::unique_ptr<Plugin> { return small_model(); }, {}, {}};
  at::Tensor alone;
  for (const LaidOut& layout : layouts) {
    CAPTURE(precision, layout.ranks, layout.settings);
    const at::Tensor told = told_on(layout, settings, {other}, [&](Engine& engine, const at::Tensor& logits) {
      const at::Tensor losses = -at::log_softmax(logits, 0);
      for (const std::int64_t target : {0, 50, 51, 100})
        if (std::abs(engine.evaluate({with_target(target, engine)}) - losses[target].item<double>()) > 2e-5)
          throw Bug("the loss of target " + std::to_string(target) + " is another");
    });
    if (!alone.defined()) alone = told;
    CHECK((told - alone).abs().max().item<double>() < (precision == "fp32" ? 1e-5 : 0.5));
    CHECK(alone.std().item<double>() > 1.0);
  }
}

TEST_CASE("asking for logits leaves no trace in the training") {
  const Config config;
  Engine one = initialize(small_model(), config.file()), other = initialize(small_model(), config.file());
  for (int step = 0; step < 3; ++step) {
    (void)other.next_token_logits({1, 2, 3, 4, 5});
    check_equal(one.train_batch(random_batches(3)), other.train_batch(random_batches(3)));
  }
}

TEST_CASE("invalid requests are refused at their line") {
  const Config config;
  Engine engine = initialize(small_model(), config.file());
  CHECK_THAT(refusal([&] { engine.next_token_logits({}); }), Contains("0 tokens were given"));
  CHECK_THAT(refusal([&] { engine.next_token_logits({1, 2, 3, 4, 5, 6}); }), Contains("1 to model.seq_len = 5"));
  CHECK_THAT(refusal([&] {
               engine.next_token_logits({1, 11});
             }),
             Contains("hold 11; the model's vocabulary is 0 to 10"));
  CHECK_THAT(refusal([&] { engine.next_token_logits({-1}); }), Contains("hold -1"));
  (void)engine.forward(random_batch(1));
  CHECK_THAT(refusal([&] { engine.next_token_logits({1}); }), Contains("a step is in progress"));
}

TEST_CASE("a model without logits is refused by name with the remedy") {
  const Config config;
  Engine engine = mute_engine(config, 0);
  const std::string told = error_of([&] { engine.next_token_logits({1}); });
  CHECK_THAT(told, Contains("mute_head") && Contains("gives no logits") && Contains("asked_rows"));
  Engine wrong = mute_engine(config, vocabulary + 1);
  CHECK_THAT(error_of<Bug>([&] { wrong.next_token_logits({1}); }), Contains("must be fp32 [1, 11]"));
}
