// The run's board: every rank publishes what it does, and a rank whose wait lasts reads there whether it can still end.
// See the notes in verdict.hpp.
//
// The board lies in the run's store, over a connection of its own, so ranks of one host and of many use it alike. A
// thread writes this rank's record a few times a second, and reads the others' while this rank waits. The first verdict
// that any rank writes holds for all: it ends the operations under way, and whatever waits throws it as an
// EnvironmentError.
#pragma once
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "group/group_provider.hpp"
#include "group/rank_record.hpp"

namespace c10d {
class Store;
}

namespace strata::runtime {

class Board {
 public:
  // A run of one rank needs no store, and nothing is watched there. `serves`: this process serves the store.
  Board(c10::intrusive_ptr<c10d::Store> store, int rank, int ranks, bool serves, std::chrono::milliseconds timeout);
  // Tells the others that this rank has left; during stack unwinding, that it failed. A rank that serves the store
  // waits at most two seconds for the others' last records.
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // What this rank does from now on; an instruction becomes text when the record is published.
  void does(const Doing& what);
  // This rank begins an operation of a group.
  void begins(const Call& call);

  // While one lives, this rank waits for `needs`, ranks of the run, to come to `call`.
  class Waiting {
   public:
    Waiting(Board& board, Call call, std::vector<int> needs);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Board& board_;
  };

  // Calls `block` while this rank waits for all ranks to come to its last collective of the run-wide `group`; then
  // check().
  void wait_for_last(const std::string& group, const std::function<void()>& block);

  // Throws the verdict, when there is one.
  void check() const;
  // An operation failed: throws the verdict that explains it, or `problem` as the verdict when none comes in two
  // seconds.
  [[noreturn]] void fail(const std::string& problem);

  // Calls `end` at a verdict, from another thread; not after unwatch() has returned.
  std::uint64_t watch(std::function<void()> end);
  void unwatch(std::uint64_t watched);

 private:
  class Watch;
  // Null in a run of one rank. Shared with the thread, which is detached when a lost store blocks it.
  std::shared_ptr<Watch> watch_;
  std::thread thread_;
  int ranks_;
};

}  // namespace strata::runtime
