// The run's board: every rank publishes its activity there, and a rank that has waited for a while reads there whether
// its wait can still end. See the notes in verdict.hpp.
//
// The board is in the run's store, over a separate connection, so it works the same on one host and on many. A thread
// writes this rank's record a few times per second, and reads the others' records while this rank waits. The first
// verdict that any rank writes applies to all: it ends the pending operations, and every wait throws it as an
// EnvironmentError.
#pragma once
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "group/group_provider.hpp"
#include "group/verdict.hpp"

namespace c10d {
class Store;
}

namespace strata::group {

struct BoardPlace {
  c10::intrusive_ptr<c10d::Store> store;  // store; none in a run of one rank
  int rank = 0;
  int ranks = 1;
  bool serves = false;  // true: this process serves the store
  std::chrono::milliseconds timeout{};
  std::function<void()> hang_up = [] {};  // ends the current call of the store, and every later one
};

// A rank's side of the board. Shared with its thread, which is abandoned if a lost store blocks it. One mutex protects
// everything except the store and the observer, which only the thread uses.
class Board : public std::enable_shared_from_this<Board> {
 public:
  explicit Board(BoardPlace place);
  ~Board();
  // Publishes this rank's first record and starts the thread. Not called in a run of one rank, which needs no store.
  // Throws EnvironmentError that names both processes if another one has this rank. This also ends the run, unless it
  // has begun: then the others continue without the newcomer.
  void join();
  // Marks the run as begun, after the ranks have compared their facts.
  void begun();
  // Makes `cause` the verdict, unless there is one, over the caller's connection to the store. Returns the verdict's
  // cause, which all ranks report. [any rank]
  static std::string settle(c10d::Store& store, const std::string& cause);
  // Publishes that this rank has left, or failed if an exception is active; called before the end, after join(). A rank
  // that serves the store waits up to two seconds for the others' last records.
  void leave();

  // Publishes that this rank failed, and ends all operations of its groups.
  void give_up();

  // Sets this rank's activity; an instruction becomes text when the record is published.
  void does(const Doing& what);
  // Records that this rank begins an operation of a group.
  void begins(const Call& call);

  // RAII record of a wait of this rank for the ranks `needs` to reach `call`.
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
  // Reports a failed operation: throws the verdict that explains it, or makes `problem` the verdict if none comes
  // within two seconds.
  [[noreturn]] void fail(const std::string& problem);

  // Calls `end` from another thread when there is a verdict, but not after unwatch() has returned.
  std::uint64_t watch(std::function<void()> end);
  void unwatch(std::uint64_t watched);

 private:
  using Clock = Observer::Clock;
  struct Ended {
    std::string cause;
    std::string table;  // only on the rank that wrote the verdict
    int by = -1;
  };

  void move(RankState state, const std::function<void(RankRecord&)>& change = {});
  void claim();
  void publish();
  void serve();
  void serve_once();
  void take_loss(Clock::time_point now);
  void wait_for_last_words();
  bool wants_to_look(Clock::time_point now) const;
  void look(Clock::time_point now);
  void tell_of_long_wait(const std::vector<Observed>& ranks);
  void tell_of_absent(const std::vector<Observed>& ranks, double waited_s);
  bool take_verdict();
  void write_verdict(const RunVerdict& verdict, const std::vector<Observed>& ranks);
  void end(Ended ended);
  void end_operations();
  std::vector<std::optional<RankRecord>> records();

  c10::intrusive_ptr<c10d::Store> store_;
  std::function<void()> hang_up_;
  int rank_;
  int ranks_;
  bool serves_;
  Patience patience_;
  std::chrono::milliseconds interval_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  RankRecord record_;
  Doing doing_ = "starting";  // value of record_.doing once it is published
  Clock::time_point moved_ = Clock::now();
  std::string problem_;  // argument of fail()
  Clock::time_point failed_;
  std::optional<Ended> ended_;
  std::atomic<bool> has_ended_{false};
  bool stopping_ = false;
  bool served_ = false;
  bool has_begun_ = false;

  std::mutex watched_mutex_;
  std::map<std::uint64_t, std::function<void()>> watched_;
  std::uint64_t last_watched_ = 0;

  Observer observer_;
  std::vector<bool> came_;
  double told_s_ = 0.0;              // length of the wait at its last report
  Clock::time_point answered_{};     // time at which the store last took this rank's record
  std::optional<std::string> lost_;  // reason why the store is lost
  std::thread thread_;
};

}  // namespace strata::group
