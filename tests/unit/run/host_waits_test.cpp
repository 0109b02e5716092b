// What a step makes the host wait for, and when ranks that are asked to stop do.
#include <csignal>
#include <numeric>

#include "ranks.hpp"
#include "run/training.hpp"

using namespace strata;

namespace {

std::vector<std::string> settings_of(const Config& config, const std::vector<std::string>& more) {
  std::vector<std::string> settings{config.data(), "train.global_batch=12", "train.micro_batch=2",
                                    "train.accumulation=auto"};
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

// Operations that a rank began on the group of all ranks.
std::int64_t operations(const run::Run& run) {
  const auto& calls = run.session().stage().groups.find("world")->traffic().calls;
  return std::accumulate(calls.begin(), calls.end(), std::int64_t{0});
}

// Steps made until the run stops, by rank, where rank `asked` is asked to from the moment that `when` steps were made.
std::vector<std::int64_t> steps_until_stopped(int ranks, int asked, std::int64_t when,
                                              const std::vector<std::string>& more) {
  const Config config;
  std::vector<std::int64_t> steps(static_cast<std::size_t>(ranks)), signals(steps);
  on_engines(ranks, config.file(), settings_of(config, more), [&](const LocalRank& rank) {
    const auto number = static_cast<std::size_t>(rank.engine.rank());
    rank.run.stop_when([&run = rank.run, is = rank.engine.rank() == asked, when] {
      return is && run.steps_done() >= when ? SIGTERM : 0;
    });
    run::train(rank.run, {});
    steps[number] = rank.run.steps_done();
    signals[number] = rank.run.stopped_by();
  });
  CHECK(signals == std::vector<std::int64_t>(steps.size(), SIGTERM));
  return steps;
}

}  // namespace

TEST_CASE("apart from the partitioner, ranks meet and the host waits once a step") {
  const int ranks = GENERATE(1, 2, 3);
  const std::string layout = GENERATE("partitioner.plugin=ddp", "partitioner.plugin=zero3", "parallel.pipeline=2");
  if (layout == "parallel.pipeline=2" && ranks != 2) return;
  const bool in_parts = layout != "parallel.pipeline=2" && GENERATE(false, true);
  const std::string policy = GENERATE("step_policy=plain", "step_policy=delayed");
  CAPTURE(ranks, layout, in_parts, policy);
  const Config config;
  std::vector<std::string> more{layout, policy};
  if (layout == "parallel.pipeline=2") more.emplace_back("scheduler.plugin=1f1b");
  std::mutex mutex;
  std::vector<std::int64_t> met, waited;
  on_engines(ranks, config.file(), settings_of(config, more), [&](const LocalRank& rank) {
    for (int step = 0; step < 3; ++step) {
      const std::vector<Batch> batches = rank.engine.batches();
      const std::int64_t before = operations(rank.run);
      const int waits = rank.waits;
      if (in_parts)
        step_in_parts(rank.engine, batches);
      else
        rank.engine.train_batch(batches);
      const std::lock_guard lock(mutex);
      const int first = step == 0 ? 1 : 0;  // before the first step the ranks agree that its report can be written
      met.push_back(operations(rank.run) - before - first);
      waited.push_back(rank.waits - waits);
    }
  });
  const auto each = static_cast<std::size_t>(3 * ranks);
  CHECK(met == std::vector<std::int64_t>(each, 1));
  CHECK(waited == std::vector<std::int64_t>(each, 1));
}

TEST_CASE("ranks stop together after the step in which one of them was asked to") {
  const int ranks = GENERATE(1, 2, 3);
  const std::string partitioner = GENERATE("partitioner.plugin=ddp", "partitioner.plugin=zero3");
  const int asked = ranks - 1;
  CAPTURE(ranks, partitioner);
  const auto all = static_cast<std::size_t>(ranks);
  CHECK(steps_until_stopped(ranks, asked, 2, {partitioner}) == std::vector<std::int64_t>(all, 3));
  CHECK(steps_until_stopped(ranks, asked, 0, {partitioner}) == std::vector<std::int64_t>(all, 0));
  // A validation after each step asks again.
  const Config config;
  CHECK(
      steps_until_stopped(ranks, asked, 2, {partitioner, "validation.path=" + config.tokens(), "validation.every=1"}) ==
      std::vector<std::int64_t>(all, 2));
}
