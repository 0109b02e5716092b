// The run's board: every rank tells there what it does, and a rank whose wait lasts looks there whether it can still
// end. See the notes in verdict.hpp.
//
// It lies in the run's store, under a connection of its own, so it is the same for ranks of one host and of many. A
// thread writes this rank's record a few times a second, and looks at the others' while this rank waits. The first
// verdict that any rank writes is everybody's: it ends the operations that are under way here, and whatever waits
// throws it as an EnvironmentError.
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
  // Tells the others that this rank has left, by an error when one is passing. A rank that serves the store waits for
  // the others' last words, two seconds at most.
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
  std::shared_ptr<Watch>
      watch_;  // its thread's too: one that a lost store keeps is left behind; null in a run of one rank
  std::thread thread_;
  int ranks_;
};

}  // namespace strata::runtime
