// Ranks in real processes: the process of a case forks them, serves the run's store to them and collects what they say.
// Each makes its own instance of the plugin and its groups as the engine does, by the engine's GroupFactory.
#pragma once
#include <strata/checked_group.hpp>
#include <strata/communicator.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "group/group_factory.hpp"
#include "runner/case.hpp"

namespace strata::conformance {

// What the body of a rank has.
struct RankProcess {
  int rank = 0;
  int size = 1;
  runtime::GroupFactory& factory;

  // [collective over `members`]
  std::unique_ptr<CheckedGroup> group(const std::string& name, std::vector<int> members) const;
  std::unique_ptr<CheckedGroup> world() const;
};

struct Launch {
  int ranks = 2;
  fakes::OptionTexts options{};
  std::chrono::milliseconds timeout{20000};  // of every operation
  std::chrono::seconds limit{40};            // all ranks have ended by then, or it is a Failure
  int killed = -1;                           // a rank that may die by a signal
  // Stands between the engine and the plugin's instance on a rank; the plugin's where it gives null.
  std::function<std::unique_ptr<Communicator>(int rank)> in_place_of_plugin{};
};

// Runs `body` on every rank. Throws Failure with what the first rank to fail threw, how it died, or which did not end.
// Nothing of libtorch may have used threads before in this process.
void on_rank_processes(Subject& subject, const Launch& launch, const std::function<void(const RankProcess&)>& body);

// Numbers that all ranks see; make it before the ranks.
class Shared {
 public:
  Shared();
  ~Shared();
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  std::atomic<std::int64_t>& operator[](int index) const { return (*values_)[static_cast<std::size_t>(index)]; }
  // Waits until the number is not 0, a minute at most.
  void wait_for(int index) const;

 private:
  std::array<std::atomic<std::int64_t>, 64>* values_;
};

// Throws Skip where the plugin cannot be used here or moves no tensors in host memory.
void require_usable(Subject& subject);

}  // namespace strata::conformance
