// What steps of an engine compute: a program's own beside the training loop's, in parts beside whole ones.
#include "run/training.hpp"

#include <strata/deepspeed.hpp>

#include <filesystem>
#include <set>

#include "program.hpp"
#include "run/implementation.hpp"
#include "run/launch_groups.hpp"

using namespace strata;

namespace {

// What a loop of training did: losses, validations by step, checkpoints.
struct Loop {
  std::vector<double> losses;
  std::vector<std::pair<std::int64_t, double>> validations;
  std::set<std::string> checkpoints;
  bool operator==(const Loop&) const = default;
};

struct LoopObserver final : run::TrainingObserver {
  void after_step(run::Run&, const report::StepRecord& record) override {
    loop.losses.push_back(record.outcome.loss);
    if (record.validation) loop.validations.emplace_back(record.step + 1, record.validation->loss);
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
  const resolve::ResolvedRun resolved =
      read_program_config(small_model(), config.file(), settings("loop"), {}, {1, "the test"});
  run::Run run(resolved, run::open_training(resolved.config, 0), {}, run::launch_groups(group::read_environment()));
  run.fill();
  LoopObserver observer;
  CHECK_THAT(run::train(run, {&observer}), Contains("step-7"));
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
  CHECK(own.checkpoints == std::set<std::string>{".lock", "latest", "step-3", "step-6", "step-7"});
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

TEST_CASE("a ds_config's auto and memory_budget apply to a program and change no result") {
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
