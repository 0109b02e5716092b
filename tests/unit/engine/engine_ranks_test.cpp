// An engine of several ranks, each on a thread of its own.
#include <strata/fakes/local_group.hpp>

#include <map>
#include <mutex>
#include <thread>

#include "engine/implementation.hpp"
#include "plugin_host/library.hpp"
#include "program.hpp"

using namespace strata;

namespace {

// Groups of one process: the first member to ask for one makes it for all.
class LocalGroups {
 public:
  std::unique_ptr<CheckedGroup> take(const runtime::GroupRequest& request, int rank) {
    const std::lock_guard lock(mutex_);
    std::vector<std::unique_ptr<CheckedGroup>>& members = made_[request.name];
    if (members.empty()) members = fakes::local_groups(static_cast<int>(request.members.size()));
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

// Runs `body` with the engine of each rank, and gives the first error.
void on_engines(int ranks, const std::string& config, const std::vector<std::string>& settings, const Body& body) {
  LocalGroups groups;
  std::vector<ProgramConfig> programs;  // libraries are loaded here, on one thread
  for (int rank = 0; rank < ranks; ++rank)
    programs.push_back(read_program_config(small_model(), config, settings, {}, {ranks, "the test"}));
  for (const config::PluginChoice* const choice : programs[0].config.plugins()) {
    const plugin_host::FoundPlugin& plugin =
        programs[0].registry->find(*plugin_kind_from_string(choice->kind), choice->plugin);
    if (!plugin.factory) plugin_host::load_library(plugin.file, plugin.manifest);
  }
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const auto index = static_cast<std::size_t>(rank);
      try {
        const runtime::MakeGroups make = [&, rank](runtime::PluginSet&) {
          return std::make_unique<LocalProvider>(groups, rank);
        };
        Engine engine(std::make_unique<Engine::Implementation>(std::move(programs[index]),
                                                               runtime::RankPlace{rank, ranks, rank}, make));
        body(engine);
      } catch (...) {
        errors[index] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
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
