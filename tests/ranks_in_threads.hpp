// Runs whose ranks are threads of one process.
#pragma once
#include <strata/fakes/local_group.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "group/group_provider.hpp"
#include "plugins/library.hpp"
#include "resolve/resolve_run.hpp"

// The first member to ask for a group makes it for all. A wait of more than `patience` is an EnvironmentError.
class LocalGroups {
 public:
  explicit LocalGroups(std::chrono::seconds patience = std::chrono::seconds(10),
                       strata::fakes::Movement movement = strata::fakes::Movement::AtStart)
      : patience_(patience), movement_(movement) {}

  std::unique_ptr<strata::CheckedGroup> take(const strata::group::GroupRequest& request, int rank) {
    const std::lock_guard lock(mutex_);
    std::vector<std::unique_ptr<strata::CheckedGroup>>& members = made_[request.name];
    if (members.empty())
      members = strata::fakes::local_groups(static_cast<int>(request.members.size()), patience_, movement_);
    const auto index = std::find(request.members.begin(), request.members.end(), rank) - request.members.begin();
    return std::move(members.at(static_cast<std::size_t>(index)));
  }

 private:
  std::chrono::seconds patience_;
  strata::fakes::Movement movement_;
  std::mutex mutex_;
  std::map<std::string, std::vector<std::unique_ptr<strata::CheckedGroup>>> made_;
};

// One rank's.
class LocalProvider : public strata::group::GroupProvider {
 public:
  LocalProvider(LocalGroups& groups, int rank) : groups_(groups), rank_(rank) {}
  std::unique_ptr<strata::CheckedGroup> make(const strata::group::GroupRequest& request) override {
    return groups_.take(request, rank_);
  }

 private:
  LocalGroups& groups_;
  int rank_;
};

// Only one thread at a time may load libraries: before the ranks begin.
inline void load_plugins(const strata::resolve::ResolvedRun& run) {
  for (const strata::config::PluginChoice* const choice : run.config.plugins()) {
    const strata::plugins::FoundPlugin& plugin =
        run.registry->find(*strata::plugin_kind_from_string(choice->kind), choice->plugin);
    if (!plugin.factory) strata::plugins::load_library(plugin.file, plugin.manifest);
  }
}

// Calls `body` for each rank on a thread of its own. Throws the error of the rank that failed first: the others' waits
// end later.
inline void in_threads(int ranks, const std::function<void(int rank)>& body) {
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}
