// Ranks of a run that are threads of the test.
#pragma once
#include <strata/fakes/local_group.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "plugin_host/library.hpp"
#include "program.hpp"
#include "run/implementation.hpp"

// Groups of one process: the first member to ask for one makes it for all.
class LocalGroups {
 public:
  std::unique_ptr<strata::CheckedGroup> take(const strata::runtime::GroupRequest& request, int rank) {
    const std::lock_guard lock(mutex_);
    std::vector<std::unique_ptr<strata::CheckedGroup>>& members = made_[request.name];
    if (members.empty())
      members = strata::fakes::local_groups(static_cast<int>(request.members.size()), std::chrono::seconds(10));
    const auto index = std::find(request.members.begin(), request.members.end(), rank) - request.members.begin();
    return std::move(members.at(static_cast<std::size_t>(index)));
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<std::unique_ptr<strata::CheckedGroup>>> made_;
};

// One rank's, which counts how often the host waits for the device.
class LocalProvider final : public strata::runtime::GroupProvider {
 public:
  LocalProvider(LocalGroups& groups, int rank, int& waits) : groups_(groups), rank_(rank), waits_(waits) {}
  std::unique_ptr<strata::CheckedGroup> make(const strata::runtime::GroupRequest& request) override {
    return groups_.take(request, rank_);
  }
  void wait_for_device(const std::function<void()>& block) override {
    ++waits_;
    block();
  }

 private:
  LocalGroups& groups_;
  int rank_;
  int& waits_;
};

struct LocalRank {
  strata::Engine& engine;
  strata::runtime::Run& run;  // what stands behind it
  const int& waits;           // so far, of this rank's host for the device
};

// Runs `body` with the engine of each rank, which trains small_model(), or the model among `plugins`. Throws the error
// of the rank that failed first: the others' waits end later.
inline void on_engines(int ranks, const std::string& config, const std::vector<std::string>& settings,
                       const std::function<void(const LocalRank& rank)>& body,
                       const std::vector<strata::ProgramPlugin>& plugins = {}) {
  using namespace strata;
  LocalGroups groups;
  std::vector<runtime::ResolvedRun> programs;  // libraries are loaded here, on one thread
  for (int rank = 0; rank < ranks; ++rank)
    programs.push_back(
        read_program_config(plugins.empty() ? small_model() : nullptr, config, settings, plugins, {ranks, "the test"}));
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
        int waits = 0;
        const runtime::MakeGroups make = [&, rank](const config::RunConfig&, const plugin_host::PluginRegistry&,
                                                   runtime::PluginSet&) {
          return std::make_unique<LocalProvider>(groups, rank, waits);
        };
        auto implementation = std::make_unique<Engine::Implementation>(
            std::move(programs[static_cast<std::size_t>(rank)]), runtime::RankNumbers{rank, ranks, rank}, make);
        runtime::Run& run = implementation->run;
        Engine engine(std::move(implementation));
        body({engine, run, waits});
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}
