#include <ATen/TensorOperators.h>
#include <strata/deepspeed.hpp>
#include <strata/optimizer.hpp>
#include <strata/options.hpp>
#include <strata/scheduler.hpp>
#include <strata/toolbox/placement.hpp>

#include <filesystem>
#include <set>

#include "program.hpp"
#include "run/implementation.hpp"
#include "run/launch_groups.hpp"
#include "run/training.hpp"

using namespace strata;

namespace {

// The text of the UserError that `call` throws, which begins with a line of this file.
template <typename Call>
std::string refusal(Call call) {
  const std::string text = error_of<UserError>(call);
  CHECK_THAT(text, Contains("engine_test.cpp:"));
  return text;
}

void check_equal(const StepResult& a, const StepResult& b) {
  CHECK(a.step == b.step);
  CHECK(a.loss == b.loss);
  CHECK(a.gradient_norm == b.gradient_norm);
  CHECK(a.learning_rate == b.learning_rate);
}

#define DESCENT_OPTIONS(OPTION) OPTION(number, slowness, 1.0, "min=0", "", "What the learning rate is divided by.")
STRATA_OPTIONS(DescentOptions, DESCENT_OPTIONS)

// A program's own optimizer.
class Descent final : public Optimizer {
 public:
  Descent(PluginContext&, const DescentOptions& options) : slowness_(options.slowness) {}
  std::vector<StateTensor> state(const PieceInfo&) const override { return {}; }
  void step(Piece& piece, const StepScalars& scalars) override {
    piece.master.sub_(piece.gradient * scalars.gradient_factor * (scalars.learning_rate / slowness_));
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
  void step(Piece&, const StepScalars&) override {}
  void shutdown() override { happened.emplace_back("shutdown"); }
};

struct FailingLayer final : OneMatrix {
  using OneMatrix::OneMatrix;
  LayerOutput forward(const Tensors& input, const MicroBatch&) override {
    if (!input[0].is_meta()) throw std::runtime_error("out of ideas");
    return {{input[0]}, {}, {}};
  }
};

// What a loop of training did: losses, validations by step, checkpoints.
struct Loop {
  std::vector<double> losses;
  std::vector<std::pair<std::int64_t, double>> validations;
  std::set<std::string> checkpoints;
  bool operator==(const Loop&) const = default;
};

struct LoopObserver final : runtime::TrainingObserver {
  void after_step(runtime::Run&, report::StepRecord record) override {
    loop.losses.push_back(record.outcome.loss);
    if (record.validation) loop.validations.emplace_back(record.step, record.validation->loss);
  }
  Loop loop;
};

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

}  // namespace

TEST_CASE("a program's own loop validates and saves when the training loop does") {
  const Config config("checkpoint: {every: 3}\n");
  const auto settings = [&](const std::string& checkpoints) {
    return std::vector<std::string>{config.data(), "validation.path=" + config.tokens(), "validation.every=2",
                                    "train.steps=7", "checkpoint.path=" + (config / checkpoints)};
  };
  const runtime::ResolvedRun resolved =
      read_program_config(small_model(), config.file(), settings("loop"), {}, {1, "the test"});
  runtime::Run run(resolved, runtime::open_training(resolved.config, 0), {},
                   runtime::launch_groups(launch::read_environment()));
  run.fill();
  LoopObserver observer;
  CHECK_THAT(runtime::train(run, observer), Contains("step-7"));
  observer.loop.checkpoints = names_in(config / "loop");

  Engine engine = initialize(small_model(), config.file(), settings("program"));
  CHECK_FALSE(engine.validation_due());
  CHECK_FALSE(engine.checkpoint_due());
  Loop own;
  while (engine.steps_done() < engine.steps()) {
    const StepResult result = engine.train_batch(engine.batches());
    own.losses.push_back(result.loss);
    CHECK((result.clip_factor > 0.0 && result.clip_factor <= 1.0));
    CHECK(result.tokens_per_s > 0.0);
    if (engine.validation_due()) own.validations.emplace_back(result.step, engine.evaluate());
    if (engine.checkpoint_due()) engine.save_checkpoint();
  }
  own.checkpoints = names_in(config / "program");
  CHECK(own == observer.loop);
  CHECK(own.losses.size() == 7);
  CHECK(own.validations.size() == 4);
  CHECK(own.checkpoints == std::set<std::string>{"latest", "step-3", "step-6", "step-7"});
}

TEST_CASE("a step in parts equals a whole one bit for bit") {
  const std::string settings =
      GENERATE("", "partitioner.plugin=zero3", "activations.checkpoint=all", "precision.plugin=bf16",
               "train.accumulation=1", "optimizer.plugin=sgd", "scheduler.plugin=1f1b");
  CAPTURE(settings);
  const Config config;
  std::vector<std::string> all{config.data()};
  if (!settings.empty()) all.push_back(settings);
  Engine parts = initialize(small_model(), config.file(), all);
  Engine whole = initialize(small_model(), config.file(), all);
  CHECK(parts.accumulation() == (settings == "train.accumulation=1" ? 1 : 3));
  double before = 0.0;
  std::vector<Batch> batches;
  for (int step = 0; step < 6; ++step) {
    CHECK(parts.steps_done() == step);
    const bool same_batches = step > 2;  // on which each step must find a smaller loss than the one before
    batches = same_batches ? batches : parts.batches();
    double sum = 0.0;
    for (const Batch& batch : batches) {
      const Loss loss = parts.forward(batch);
      parts.backward(loss);
      sum += loss.value();
    }
    const StepResult result = parts.step();
    check_equal(result, whole.train_batch(same_batches ? batches : whole.batches()));
    CHECK(result.loss == Approx(sum / static_cast<double>(parts.accumulation())).epsilon(1e-6));
    CHECK(result.applied);
    if (same_batches) CHECK(result.loss < before);
    before = result.loss;
  }
}

TEST_CASE("plugins of an engine that cannot be made stop before what they were given goes") {
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

TEST_CASE("a ds_config's auto and memory_budget hold for a program: the memory changes no result") {
  accept_deepspeed_configs();
  const Config config;
  const std::string file = config / "ds_config.json";
  write_file(file, R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto", "optimizer": {"type": "SGD", "params": {"lr": 0.5}},
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": "auto"}})");
  std::string tokens;
  for (int i = 0; i < 20000; ++i) tokens += {static_cast<char>(i * i % 7 % vocabulary), '\0'};
  write_file(config / "long.bin", tokens);
  const auto made = [&](const std::string& budget) {
    return initialize(small_model(), file,
                      {"data.path=" + (config / "long.bin"), "device=cpu", "model.seq_len=1000", "train.steps=5",
                       "memory_budget=" + budget});
  };
  Engine roomy = made("1GB"), narrow = made("1MiB");
  CHECK(roomy.seq_len() == 1000);
  CHECK(roomy.accumulation() == 1);
  CHECK(narrow.accumulation() > 1);
  CHECK(narrow.accumulation() * narrow.batches().front().tokens.size(0) == 8);
  double first = 0.0;
  for (int step = 0; step < 5; ++step) {
    const StepResult all = roomy.train_batch(roomy.batches()), parts = narrow.train_batch(narrow.batches());
    CHECK(parts.loss == Approx(all.loss).epsilon(2e-6));
    CHECK(parts.gradient_norm == Approx(all.gradient_norm).epsilon(1e-5));
    if (step == 0) first = all.loss;
    if (step == 4) CHECK(all.loss < first);
  }
}

TEST_CASE("micro-batches of unequal token counts weigh by their tokens, in parts and whole") {
  const Config config;
  Engine parts = initialize(small_model(), config.file());
  Engine whole = initialize(small_model(), config.file());
  for (unsigned step = 0; step < 4; ++step) {
    const std::vector<Batch> batches{random_batch(step, 2), random_batch(step + 10),
                                     random_batch(step + 20, 1)};  // the last counts nothing
    const StepResult a = step_in_parts(parts, batches);
    const StepResult b = whole.train_batch(batches);
    CHECK(a.loss == Approx(b.loss).epsilon(1e-6));
    CHECK(a.gradient_norm == Approx(b.gradient_norm).epsilon(1e-6));
  }
  const Loss nothing = parts.forward(random_batch(1, 1));
  CHECK(nothing.value() == 0.0);
}

TEST_CASE("a step without a single valid target is refused") {
  const Config config;
  const std::vector<Batch> nothing{random_batch(1, 1), random_batch(2, 1), random_batch(3, 1)};
  Engine whole = initialize(small_model(), config.file());
  CHECK_THAT(error_of<UserError>([&] { whole.train_batch(nothing); }), Contains("target"));
  Engine parts = initialize(small_model(), config.file());
  CHECK_THAT(error_of<UserError>([&] { step_in_parts(parts, nothing); }), Contains("target"));
}

TEST_CASE("calls in a wrong order are refused, and the engine goes on") {
  const Config config;
  Engine engine = initialize(small_model(), config.file());
  Engine reference = initialize(small_model(), config.file());
  const std::vector<Batch> batches = random_batches(7);
  CHECK_THAT(refusal([&] { engine.step(); }), Contains("0 of 3 micro-batches"));
  const Loss first = engine.forward(batches[0]);
  CHECK_THAT(refusal([&] { engine.forward(batches[1]); }), Contains("not passed to engine.backward"));
  CHECK_THAT(refusal([&] { engine.step(); }), Contains("not passed to engine.backward"));
  CHECK_THAT(refusal([&] { engine.train_batch(batches); }), Contains("a step is under way, 1 of 3"));
  CHECK_THAT(refusal([&] { engine.export_weights(config / "weights"); }), Contains("a step is under way"));
  engine.backward(first);
  CHECK_THAT(refusal([&] { engine.step(); }), Contains("1 of 3 micro-batches"));
  for (const std::size_t i : {1, 2}) engine.backward(engine.forward(batches[i]));
  CHECK_THAT(refusal([&] { engine.forward(batches[0]); }), Contains("call engine.step() first"));
  CHECK_THAT(refusal([&] { engine.train_batch(batches); }), Contains("a step is under way"));
  check_equal(engine.step(), reference.train_batch(batches));
  CHECK_THAT(refusal([&] { engine.step(); }), Contains("0 of 3"));
  CHECK_THAT(refusal([&] { engine.train_batch(random_batches(1, 2)); }), Contains("2 micro-batches were given"));
  CHECK_THAT(refusal([&] { engine.train_batch({}); }), Contains("0 micro-batches were given"));
  check_equal(engine.train_batch(batches), reference.train_batch(batches));
}

TEST_CASE("backward takes the last loss of its own engine, once") {
  const Config config;
  Engine engine = initialize(small_model(), config.file());
  Engine other = initialize(small_model(), config.file());
  const Batch batch = random_batch(4);
  const Loss mine = engine.forward(batch);
  const Loss foreign = other.forward(batch);
  CHECK(mine.value() == foreign.value());
  CHECK_THAT(refusal([&] { engine.backward(foreign); }), Contains("another engine"));
  engine.backward(mine);
  CHECK_THAT(refusal([&] { engine.backward(mine); }), Contains("went backward already"));
  const Loss copy = mine;
  const Loss second = engine.forward(batch);
  CHECK_THAT(refusal([&] { engine.backward(copy); }), Contains("went backward already"));
  engine.backward(second);
  engine.backward(engine.forward(batch));
  engine.step();
  const Loss next = engine.forward(batch);
  CHECK_THAT(refusal([&] { engine.backward(second); }), Contains("went backward already"));
  engine.backward(next);
}

TEST_CASE("batches of another shape, type or vocabulary are refused, and the engine goes on") {
  const Config config;
  Engine engine = initialize(small_model(), config.file());
  const Batch good = random_batch(1);
  CHECK_THAT(refusal([&] { engine.forward({}); }), Contains("tokens are undefined"));
  CHECK_THAT(refusal([&] { engine.forward({good.tokens, {}}); }), Contains("targets are undefined"));
  CHECK_THAT(refusal([&] {
               engine.forward({good.tokens.view({5, 2}), good.targets});
             }),
             Contains("tokens are Long [5, 2]"));
  CHECK_THAT(refusal([&] {
               engine.forward({good.tokens, good.targets.narrow(1, 0, 4)});
             }),
             Contains("targets are Long [2, 4]"));
  CHECK_THAT(refusal([&] {
               engine.forward({good.tokens.to(at::kInt), good.targets});
             }),
             Contains("tokens are Int [2, 5]"));
  CHECK_THAT(refusal([&] {
               engine.forward({good.tokens, good.targets + 11});
             }),
             Contains("the model's vocabulary is 0 to 10"));
  CHECK_THAT(refusal([&] { engine.forward({good.tokens - 11, good.targets}); }), Contains("the batch's tokens hold -"));
  CHECK_THAT(refusal([&] {
               engine.train_batch({good, good, {good.tokens, good.targets + 11}});
             }),
             Contains("engine.train_batch"));
  const Batch strided{good.tokens.t().contiguous().t(), good.targets.t().contiguous().t()};
  Engine same = initialize(small_model(), config.file());
  CHECK(engine.forward(strided).value() == same.forward(good).value());
}

TEST_CASE("an engine that failed in the middle of a step says so") {
  const Config config;
  auto model = std::make_unique<SequentialModel>(vocabulary);
  model->add<EmbeddingLayer>("embedding", vocabulary, width);
  model->add<FailingLayer>("failing", width, width);
  model->add<HeadLayer>("head", vocabulary, width);
  Engine engine = initialize(std::move(model), config.file());
  CHECK_THAT(error_of<Bug>([&] { engine.forward(random_batch(1)); }),
             Contains("failing (layer 1)") && Contains("out of ideas"));
  CHECK_THAT(refusal([&] { engine.forward(random_batch(1)); }), Contains("make a new engine"));
  CHECK_THAT(refusal([&] { engine.train_batch(random_batches(1)); }), Contains("make a new engine"));
  CHECK_THAT(refusal([&] { engine.step(); }), Contains("make a new engine"));
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

TEST_CASE("what a config and a program may say of the model and the data") {
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
  CHECK_THAT(refusal([&] { engine.batches(); }), Contains("data.path is not given"));
  CHECK_THAT(error_of<UserError>([&] { initialize(std::make_unique<SequentialModel>(0), config.file()); }),
             Contains("vocabulary"));
  auto narrow = std::make_unique<SequentialModel>(5);
  narrow->add<EmbeddingLayer>("embedding", std::int64_t{5}, width);
  narrow->add<HeadLayer>("head", std::int64_t{5}, width);
  CHECK_THAT(error_of<UserError>([&] { initialize(std::move(narrow), config.file(), {config.data()}); }),
             Contains("tokens.bin") && Contains("vocabulary is 0 to 4"));
}

TEST_CASE("exported weights start another engine where the first stood") {
  const Config config;
  Engine engine = initialize(small_model(), config.file(), {"train.clip=0"});
  for (unsigned step = 0; step < 5; ++step) engine.train_batch(random_batches(step));
  engine.export_weights(config / "weights");
  Engine other = initialize(small_model(), config.file(), {"model.init=" + (config / "weights")});
  CHECK(engine.forward(random_batch(50)).value() == other.forward(random_batch(50)).value());
  CHECK_THAT(refusal([&] { engine.export_weights(config / "weights"); }), Contains("a step is under way"));
  CHECK_THAT(error_of<UserError>([&] { initialize(small_model(), config.file()).export_weights(config / "weights"); }),
             Contains("not empty"));
}

TEST_CASE("evaluation gives the loss and leaves training as it is") {
  const Config config;
  Engine engine = initialize(small_model(), config.file());
  Engine undisturbed = initialize(small_model(), config.file());
  const std::vector<Batch> batches = random_batches(3);
  engine.train_batch(batches);
  undisturbed.train_batch(batches);
  const double one = engine.evaluate({batches[1]});
  const double all = engine.evaluate(batches);
  CHECK(engine.evaluate(batches) == all);
  check_equal(engine.train_batch(batches), undisturbed.train_batch(batches));
  CHECK(engine.evaluate(batches) < all);
  const Loss loss = engine.forward(batches[1]);
  CHECK(loss.value() != one);
  CHECK_THAT(refusal([&] { engine.evaluate(batches); }), Contains("a step is under way"));
  CHECK_THAT(refusal([&] { undisturbed.evaluate(); }), Contains("validation.path is not given"));
  CHECK_THAT(refusal([&] { undisturbed.evaluate(std::vector<Batch>{}); }), Contains("0 micro-batches were given"));
  CHECK_THAT(refusal([&] { undisturbed.evaluate(random_batches(1, 4)); }), Contains("4 micro-batches were given"));
}

TEST_CASE("checkpoints are refused where they cannot be") {
  const Config config;
  Engine engine = initialize(small_model(), config.file());
  CHECK_THAT(refusal([&] { engine.save_checkpoint(); }), Contains("checkpoint.path is not given"));
  CHECK_THAT(refusal([&] { engine.resume(); }), Contains("checkpoint.path is not given"));
  CHECK_THAT(error_of<UserError>([&] { engine.resume(config / "nowhere"); }), Contains("nowhere"));
  const std::string path = "checkpoint.path=" + (config / "checkpoints");
  Engine saving = initialize(small_model(), config.file(), {path});
  CHECK_THAT(error_of<UserError>([&] { initialize(small_model(), config.file(), {path}); }), Contains("checkpoints"));
  CHECK(!saving.resume());
  saving.train_batch(random_batches(1));
  const std::string folder = saving.save_checkpoint();
  CHECK_THAT(refusal([&] { saving.resume(); }), Contains("before its first step"));
  CHECK(engine.resume(folder));  // saved with the program's own batches
  check_equal(engine.train_batch(random_batches(9)), saving.train_batch(random_batches(9)));
  CHECK_THAT(refusal([&] { engine.resume(folder); }), Contains("before its first step"));
}
