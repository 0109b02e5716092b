// An engine of several ranks, each on a thread of its own.
#include <filesystem>
#include <fstream>
#include <mutex>

#include "ranks.hpp"

using namespace strata;

namespace {

// The losses of four steps over the config's data, on rank 0.
std::vector<double> losses(int ranks, const std::vector<std::string>& more, bool in_parts) {
  const Config config;
  std::vector<std::string> settings{config.data(), "train.global_batch=12", "train.micro_batch=2",
                                    "train.accumulation=auto"};
  settings.insert(settings.end(), more.begin(), more.end());
  std::vector<double> found;
  on_engines(ranks, config.file(), settings, [&](const LocalRank& rank) {
    Engine& engine = rank.engine;
    for (int step = 0; step < 4; ++step) {
      const StepResult result =
          in_parts ? step_in_parts(engine, engine.batches()) : engine.train_batch(engine.batches());
      if (engine.rank() == 0) found.push_back(result.loss);
    }
  });
  return found;
}

}  // namespace

TEST_CASE("ranks share a step in parts as they share a whole one") {
  const std::string partitioner = GENERATE("partitioner.plugin=ddp", "partitioner.plugin=zero3");
  const int ranks = GENERATE(2, 3);
  CAPTURE(partitioner, ranks);
  const std::vector<double> parts = losses(ranks, {partitioner}, true);
  CHECK(parts == losses(ranks, {partitioner}, false));
  const std::vector<double> alone = losses(1, {}, false);
  REQUIRE(parts.size() == alone.size());
  for (std::size_t i = 0; i < alone.size(); ++i) CHECK(parts[i] == Approx(alone[i]).epsilon(2e-6));
}

TEST_CASE("stages of a pipeline take whole steps only") {
  const std::vector<std::string> settings{"parallel.pipeline=2", "scheduler.plugin=1f1b"};
  const std::vector<double> piped = losses(2, settings, false);
  const std::vector<double> alone = losses(1, {}, false);
  REQUIRE(piped.size() == alone.size());
  for (std::size_t i = 0; i < alone.size(); ++i) CHECK(piped[i] == Approx(alone[i]).epsilon(2e-6));
  CHECK_THAT(error_of<UserError>([&] { losses(2, settings, true); }),
             Contains("parallel.pipeline is 2") && Contains("engine.train_batch"));
}

TEST_CASE("ranks save, go on and evaluate together") {
  const int ranks = GENERATE(1, 2);
  const Config config("checkpoint: {keep: 2}\n");
  std::vector<std::string> settings{config.data(),
                                    "train.global_batch=12",
                                    "train.micro_batch=2",
                                    "train.accumulation=auto",
                                    "partitioner.plugin=zero3",
                                    "checkpoint.path=" + (config / "checkpoints"),
                                    "validation.path=" + config.tokens()};
  std::vector<double> uninterrupted;
  std::vector<double> evaluations;
  on_engines(ranks, config.file(), settings, [&](const LocalRank& rank) {
    Engine& engine = rank.engine;
    for (int step = 0; step < 6; ++step) {
      if (step == 3) {
        const std::string folder = engine.save_checkpoint();
        CHECK_THAT(folder, Contains("step-3"));
      }
      const double loss = engine.train_batch(engine.batches()).loss;
      const double evaluation = engine.evaluate();
      if (engine.rank() == 0) {
        uninterrupted.push_back(loss);
        evaluations.push_back(evaluation);
      }
    }
  });
  std::vector<double> resumed;
  double evaluation = 0.0;
  on_engines(ranks, config.file(), settings, [&](const LocalRank& rank) {
    Engine& engine = rank.engine;
    if (!engine.resume()) throw std::runtime_error("nothing to go on from");
    for (std::int64_t step = engine.steps_done(); step < 6; ++step) {
      const double loss = step_in_parts(engine, engine.batches()).loss;
      if (engine.rank() == 0) resumed.push_back(loss);
    }
    const double last = engine.evaluate();
    if (engine.rank() == 0) evaluation = last;
  });
  CHECK(resumed == std::vector<double>(uninterrupted.begin() + 3, uninterrupted.end()));
  CHECK(evaluation == evaluations.back());
  CHECK(evaluations.back() < evaluations.front());
  CHECK_THAT(error_of<UserError>([&] {
               on_engines(ranks, config.file(), settings,
                          [](const LocalRank& rank) { rank.engine.train_batch(rank.engine.batches()); });
             }),
             Contains("up to step-3") && Contains("engine.resume()"));
}

TEST_CASE("an export that rank 0 cannot write fails on all ranks, which go on") {
  const Config config;
  std::filesystem::create_directory(config / "taken");
  std::ofstream(config / "taken/file") << "something";
  std::mutex mutex;
  std::vector<std::string> errors;
  on_engines(2, config.file(),
             {config.data(), "train.global_batch=12", "train.micro_batch=2", "train.accumulation=auto"},
             [&](const LocalRank& rank) {
               rank.engine.train_batch(rank.engine.batches());
               const std::string error = error_of<UserError>([&] { rank.engine.export_weights(config / "taken"); });
               rank.engine.train_batch(rank.engine.batches());
               rank.engine.export_weights(config / "weights");
               const std::lock_guard lock(mutex);
               errors.push_back(error);
             });
  REQUIRE(errors.size() == 2);
  for (const std::string& error : errors) CHECK_THAT(error, Contains("taken"));
  CHECK(std::filesystem::exists(config / "weights/model.safetensors"));
}
