// Ranks of a run that are threads of the test.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "program.hpp"
#include "ranks_in_threads.hpp"
#include "run/implementation.hpp"

// Counts how often the host waits for the device.
class CountingProvider final : public LocalProvider {
 public:
  CountingProvider(LocalGroups& groups, int rank, int& waits) : LocalProvider(groups, rank), waits_(waits) {}
  void wait_for_device(const std::function<void()>& block) override {
    ++waits_;
    block();
  }
  void stop() override { ++stops; }
  static inline std::atomic<int> stops{0};  // of all ranks of all tests

 private:
  int& waits_;
};

struct LocalRank {
  strata::Engine& engine;
  strata::run::Run& run;  // what stands behind it
  const int& waits;       // so far, of this rank's host for the device
};

// Runs `body` with the engine of each rank, which trains small_model(), or the model among `plugins`. Throws the error
// of the rank that failed first: the others' waits end later.
inline void on_engines(int ranks, const std::string& config, const std::vector<std::string>& settings,
                       const std::function<void(const LocalRank& rank)>& body,
                       const std::vector<strata::ProgramPlugin>& plugins = {},
                       strata::fakes::Movement movement = strata::fakes::Movement::AtStart) {
  using namespace strata;
  LocalGroups groups(std::chrono::seconds(10), movement);
  std::vector<resolve::ResolvedRun> programs;  // libraries are loaded here, on one thread
  for (int rank = 0; rank < ranks; ++rank)
    programs.push_back(
        read_program_config(plugins.empty() ? small_model() : nullptr, config, settings, plugins, {ranks, "the test"}));
  load_plugins(programs[0]);
  in_threads(ranks, [&](int rank) {
    int waits = 0;
    const stage::MakeGroups make = [&](const config::RunConfig&, const plugins::PluginRegistry&, stage::PluginSet&) {
      return std::make_unique<CountingProvider>(groups, rank, waits);
    };
    auto implementation = std::make_unique<Engine::Implementation>(std::move(programs[static_cast<std::size_t>(rank)]),
                                                                   stage::RankNumbers{rank, ranks, rank}, make);
    run::Run& run = implementation->run;
    Engine engine(std::move(implementation));
    body({engine, run, waits});
  });
}
