// An engine of several ranks, each on a thread of its own.
#include <strata/fakes/local_group.hpp>

#include <map>
#include <mutex>
#include <thread>

#include "plugin_host/library.hpp"
#include "program.hpp"
#include "run/implementation.hpp"

using namespace strata;

namespace {

// Groups of one process: the first member to ask for one makes it for all.
class LocalGroups {
 public:
  std::unique_ptr<CheckedGroup> take(const runtime::GroupRequest& request, int rank) {
    const std::lock_guard lock(mutex_);
    std::vector<std::unique_ptr<CheckedGroup>>& members = made_[request.name];
    if (members.empty())
      members = fakes::local_groups(static_cast<int>(request.members.size()), std::chrono::seconds(10));
    const auto index = std::find(request.members.begin(), request.members.end(), rank) - request.members.begin();
    return std::move(members.at(static_cast<std::size_t>(index)));
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<std::unique_ptr<CheckedGroup>>> made_;
};

class LocalProvider final : public runtime::GroupProvider {
 public:
  LocalProvider(LocalGroups& groups, int rank) : groups_(groups), rank_(rank) {}
  std::unique_ptr<CheckedGroup> make(const runtime::GroupRequest& request) override {
    return groups_.take(request, rank_);
  }

 private:
  LocalGroups& groups_;
  int rank_;
};

using Body = std::function<void(Engine& engine)>;

// Runs `body` with the engine of each rank. Throws the error of the rank that failed first: the others' waits end
// later.
void on_engines(int ranks, const std::string& config, const std::vector<std::string>& settings, const Body& body) {
  LocalGroups groups;
  std::vector<runtime::ResolvedRun> programs;  // libraries are loaded here, on one thread
  for (int rank = 0; rank < ranks; ++rank)
    programs.push_back(read_program_config(small_model(), config, settings, {}, {ranks, "the test"}));
  for (const config::PluginChoice* const choice : programs[0].config.plugins()) {
    const plugin_host::FoundPlugin& plugin =
        programs[0].registry->find(*plugin_kind_from_string(choice->kind), choice->plugin);
    if (!plugin.factory) plugin_host::load_library(plugin.file, plugin.manifest);
  }
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        const runtime::MakeGroups make = [&, rank](const config::RunConfig&, const plugin_host::PluginRegistry&,
                                                   runtime::PluginSet&) {
          return std::make_unique<LocalProvider>(groups, rank);
        };
        Engine engine(std::make_unique<Engine::Implementation>(std::move(programs[static_cast<std::size_t>(rank)]),
                                                               runtime::RankNumbers{rank, ranks, rank}, make));
        body(engine);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

// The losses of four steps over the config's data, on rank 0.
std::vector<double> losses(int ranks, const std::vector<std::string>& more, bool in_parts) {
  const Config config;
  std::vector<std::string> settings{config.data(), "train.global_batch=12", "train.micro_batch=2",
                                    "train.accumulation=auto"};
  settings.insert(settings.end(), more.begin(), more.end());
  std::vector<double> found;
  on_engines(ranks, config.file(), settings, [&](Engine& engine) {
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
  on_engines(ranks, config.file(), settings, [&](Engine& engine) {
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
  on_engines(ranks, config.file(), settings, [&](Engine& engine) {
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
               on_engines(ranks, config.file(), settings, [](Engine& engine) { engine.train_batch(engine.batches()); });
             }),
             Contains("up to step-3") && Contains("engine.resume()"));
}
