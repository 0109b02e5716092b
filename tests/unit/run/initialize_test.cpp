// What makes an engine, and what does not: its config, its model, and plugins of the program.
#include <strata/optimizer.hpp>
#include <strata/options.hpp>
#include <strata/scheduler.hpp>
#include <strata/toolbox/placement.hpp>

#include "program.hpp"

using namespace strata;

namespace {

#define DESCENT_OPTIONS(OPTION) OPTION(number, slowness, 1.0, "min=0", "", "What the learning rate is divided by.")
STRATA_OPTIONS(DescentOptions, DESCENT_OPTIONS)

// A program's own optimizer.
class Descent final : public Optimizer {
 public:
  Descent(PluginContext&, const DescentOptions& options) : slowness_(options.slowness) {}
  std::vector<StateTensor> state(const PieceInfo&) const override { return {}; }
  void step(std::span<Piece* const> pieces, int, const StepScalars& scalars) override {
    for (Piece* const piece : pieces)
      piece->master.sub_(piece->gradient * scalars.gradient_factor * (scalars.learning_rate / slowness_));
  }

 private:
  double slowness_;
};

STRATA_NO_OPTIONS(NoOptions)

// A program's own scheduler: all forwards before all backwards.
class ForwardsFirst final : public Scheduler {
 public:
  ForwardsFirst(PluginContext&, const NoOptions&) {}
  Placement place(const std::vector<LayerCost>& layers, const PipelineShape& shape) const override {
    return toolbox::place_in_turn(layers, shape);
  }
  std::vector<ComputeAction> order(const PipelineShape& shape, int stage) const override {
    std::vector<ComputeAction> order;
    for (int i = 0; i < shape.micro_batches; ++i) order.push_back({ComputeKind::Forward, stage, i});
    for (int i = 0; i < shape.micro_batches; ++i) order.push_back({ComputeKind::Backward, stage, i});
    return order;
  }
};

std::vector<ProgramPlugin> own_plugins() {
  return {program_plugin<Optimizer, Descent, DescentOptions>("descent"),
          program_plugin<Scheduler, ForwardsFirst, NoOptions>("forwards_first")};
}

std::vector<std::string> happened;

struct NotedLayer final : OneMatrix {
  using OneMatrix::OneMatrix;
  ~NotedLayer() override { happened.emplace_back("the layer went"); }
  LayerOutput forward(const Tensors& input, const MicroBatch&) override { return {{input[0]}, {}, {}}; }
};

// Is asked for its state when the session is half made.
class Unwilling final : public Optimizer {
 public:
  Unwilling(PluginContext&, const NoOptions&) {}
  std::vector<StateTensor> state(const PieceInfo&) const override {
    happened.clear();
    throw UserError("not today");
  }
  void step(std::span<Piece* const>, int, const StepScalars&) override {}
  void shutdown() override { happened.emplace_back("shutdown"); }
};

}  // namespace

TEST_CASE("keys without an effect in a program are refused with the alternative") {
  const auto refusal = [](const std::string& more, const std::vector<std::string>& settings = {}) {
    const Config config(more);
    return error_of<UserError>([&] { initialize(small_model(), config.file(), settings); });
  };
  CHECK_THAT(refusal("compare: [train.steps=5]\n"),
             Contains("config.yaml:5") && Contains("which has no effect in a program: `strata compare` trains these") &&
                 Contains("start the program once for each"));
  CHECK_THAT(refusal("", {"memory_budget=1GiB"}), Contains("memory_budget is") && Contains("which has no effect"));
  CHECK(refusal("metrics: {csv: \"\"}\nexport: \"\"\ncompare: []\n") == "");
}

TEST_CASE("plugins of a failed engine shut down before their inputs are destroyed") {
  const Config config;
  auto model = std::make_unique<SequentialModel>(vocabulary);
  model->add<EmbeddingLayer>("embedding", vocabulary, width);
  model->add<NotedLayer>("noted", width, width);
  model->add<HeadLayer>("head", vocabulary, width);
  CHECK_THAT(error_of<UserError>([&] {
               initialize(std::move(model), config.file(), {config.data(), "optimizer.plugin=unwilling"},
                          {program_plugin<Optimizer, Unwilling, NoOptions>("unwilling")});
             }),
             Contains("not today"));
  CHECK(happened == std::vector<std::string>{"shutdown", "the layer went"});
}

TEST_CASE("a scheduler of another order takes whole steps only") {
  const Config config;
  Engine engine = initialize(small_model(), config.file(), {"scheduler.plugin=forwards_first"}, own_plugins());
  Engine reference = initialize(small_model(), config.file());
  CHECK_THAT(refusal([&] { engine.forward(random_batch(1)); }),
             Contains("scheduler/forwards_first") && Contains("engine.train_batch"));
  CHECK_THAT(refusal([&] { engine.step(); }), Contains("engine.train_batch"));
  check_equal(engine.train_batch(random_batches(3)), reference.train_batch(random_batches(3)));
  Engine single = initialize(small_model(), config.file(), {"scheduler.plugin=forwards_first", "train.accumulation=1"},
                             own_plugins());
  step_in_parts(single, {random_batch(1)});  // one micro-batch leaves no other order
}

TEST_CASE("a program's own plugins are named by the config, with options") {
  const Config config("optimizer: {plugin: descent, slowness: 2}\ntrain.clip: 0\n");
  CHECK_THAT(error_of<UserError>([&] { initialize(small_model(), config.file(), {}, own_plugins()); }),
             Contains("train.clip"));
  const Config good("optimizer: {plugin: descent, slowness: 2}\n");
  Engine own = initialize(small_model(), good.file(), {"learning_rate.base=0.1"}, own_plugins());
  Engine sgd = initialize(small_model(), good.file(), {"optimizer.plugin=sgd"}, own_plugins());
  for (unsigned step = 0; step < 3; ++step)
    CHECK(own.train_batch(random_batches(step)).loss ==
          Approx(sgd.train_batch(random_batches(step)).loss).epsilon(1e-5));
  CHECK_THAT(error_of<UserError>([&] { initialize(small_model(), good.file()); }), Contains("descent"));
  CHECK_THAT(error_of<UserError>(
                 [&] { initialize(small_model(), good.file(), {"optimizer.descent.slownes=3"}, own_plugins()); }),
             Contains("slowness"));
  std::vector<ProgramPlugin> twice = own_plugins();
  twice.push_back(twice.front());
  CHECK_THAT(error_of<Bug>([&] { initialize(small_model(), good.file(), {}, twice); }), Contains("twice"));
}

TEST_CASE("a config and a program may not both set the model and the data") {
  const Config config;
  CHECK_THAT(error_of<UserError>([&] { initialize(small_model(), config.file(), {"model.plugin=gpt_neox"}); }),
             Contains("model.plugin is \"gpt_neox\""));
  CHECK_THAT(error_of<UserError>([&] { initialize(small_model(), Config("").file() + ".nowhere"); }),
             Contains("nowhere"));
  CHECK_THAT(error_of<UserError>([&] { initialize(std::unique_ptr<Model>(), config.file()); }), Contains("null model"));
  CHECK_THAT(error_of<UserError>([&] { initialize(config.file()); }), Contains("model.plugin must be given"));
  CHECK_THAT(error_of<UserError>([&] { initialize(std::make_unique<SequentialModel>(5), config.file()); }),
             Contains("layer"));
  Engine engine = initialize(small_model(), config.file());
  CHECK_THAT(refusal([&] { engine.batches(); }), Contains("data.path is not set"));
  CHECK_THAT(error_of<UserError>([&] { initialize(std::make_unique<SequentialModel>(0), config.file()); }),
             Contains("vocabulary"));
  auto narrow = std::make_unique<SequentialModel>(5);
  narrow->add<EmbeddingLayer>("embedding", std::int64_t{5}, width);
  narrow->add<HeadLayer>("head", std::int64_t{5}, width);
  CHECK_THAT(error_of<UserError>([&] { initialize(std::move(narrow), config.file(), {config.data()}); }),
             Contains("tokens.bin") && Contains("vocabulary is 0 to 4"));
}
