// One rank's side of the board and the thread that serves it; see board.hpp.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "group/board.hpp"
#include "group/verdict.hpp"

namespace strata::runtime {

// One mutex protects everything except the store and the observer, which only the thread uses.
class Board::Watch {
 public:
  Watch(c10::intrusive_ptr<c10d::Store> store, int rank, int ranks, bool serves, std::chrono::milliseconds timeout);
  void move(RankState state, const std::function<void(RankRecord&)>& change = {});
  void does(const Doing& what);
  void begins(const Call& call);
  void check() const;
  [[noreturn]] void fail(const std::string& problem);
  std::uint64_t watch(std::function<void()> end);
  void unwatch(std::uint64_t watched);
  void publish();
  void serve();
  // Returns true if the thread ended in time.
  bool stop(RankState state);

 private:
  using Clock = Observer::Clock;
  struct Ended {
    std::string cause;
    std::string table;  // only on the rank that wrote the verdict
    int by = -1;
  };

  void serve_once(Clock::time_point now);
  void take_loss(Clock::time_point now);
  void wait_for_last_words();
  bool wants_to_look(Clock::time_point now) const;
  void look(Clock::time_point now);
  void tell_of_long_wait(const std::vector<Observed>& ranks, Clock::time_point now);
  bool take_verdict();
  void write_verdict(const Verdict& verdict, const std::vector<Observed>& ranks);
  void end(Ended ended);
  std::vector<std::optional<RankRecord>> records();

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  int ranks_;
  bool serves_;
  Patience patience_;
  std::chrono::milliseconds interval_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  RankRecord record_;
  Doing doing_ = "starting";  // what record_.doing says once it is published
  Clock::time_point moved_ = Clock::now();
  std::string problem_;  // argument of fail()
  Clock::time_point failed_;
  std::optional<Ended> ended_;
  std::atomic<bool> has_ended_{false};
  bool stopping_ = false;
  bool served_ = false;

  std::mutex watched_mutex_;
  std::map<std::uint64_t, std::function<void()>> watched_;
  std::uint64_t last_watched_ = 0;

  Observer observer_;
  std::vector<bool> came_;
  Clock::time_point told_;
  std::optional<Clock::time_point> lost_;  // when the store stopped answering
};

}  // namespace strata::runtime
