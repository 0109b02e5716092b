// The run's board: every rank publishes there what it does, and a rank that has waited for a while reads there whether
// its wait can still end. See the notes in verdict.hpp.
//
// The board is in the run's store, over a separate connection, so it works the same on one host and on many. A thread
// writes this rank's record a few times per second, and reads the others' records while this rank waits. The first
// verdict that any rank writes applies to all: it ends the pending operations, and every wait throws it as an
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
  // A run of one rank needs no store and is not watched. `serves`: this process serves the store.
  Board(c10::intrusive_ptr<c10d::Store> store, int rank, int ranks, bool serves, std::chrono::milliseconds timeout);
  // Publishes that this rank has left, or failed if an exception is active. A rank that serves the store waits up to
  // two seconds for the others' last records.
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // Sets what this rank does from now on; an instruction becomes text when the record is published.
  void does(const Doing& what);
  // Records that this rank begins an operation of a group.
  void begins(const Call& call);

  // During its lifetime, this rank waits for the ranks `needs` to reach `call`.
  class Waiting {
   public:
    Waiting(Board& board, Call call, std::vector<int> needs);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Board& board_;
  };

  // Calls `block` while this rank waits for all ranks to reach its last collective of the run-wide `group`; then calls
  // check().
  void wait_for_last(const std::string& group, const std::function<void()>& block);

  // Throws the verdict, if there is one.
  void check() const;
  // An operation failed: throws the verdict that explains it, or makes `problem` the verdict if none comes within two
  // seconds.
  [[noreturn]] void fail(const std::string& problem);

  // Calls `end` from another thread when there is a verdict, but not after unwatch() has returned.
  std::uint64_t watch(std::function<void()> end);
  void unwatch(std::uint64_t watched);

 private:
  class Watch;
  // Shared with its thread, which is left behind if a lost store blocks it; null for one rank.
  std::shared_ptr<Watch> watch_;
  std::thread thread_;
  int ranks_;
};

}  // namespace strata::runtime
