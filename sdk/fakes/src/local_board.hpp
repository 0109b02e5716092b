#pragma once
#include <strata/fakes/local_group.hpp>

#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace strata::fakes {

// One rank's call, as the others see it.
struct Call {
  Operation operation;
  std::string text;   // describes it
  std::string terms;  // what must be equal on all members
  // Of Movement::AtWait: what it gives, as it was at the start, and the bytes that must still be there at the wait.
  at::Tensor given;
  at::Tensor input_bytes;
  at::Tensor output_bytes;
};

// Calls that belong together: the n-th collective of the group, or the n-th send of a pair and its receive.
struct Meeting {
  std::map<int, Call> calls;  // by rank
  at::Tensor sum;             // of AllReduce and Reduce
  bool complete = false;      // all members are there
  std::exception_ptr error;
};

// Where the members of one group meet. Threads may use it.
class Board {
 public:
  Board(int size, std::chrono::milliseconds patience, Movement movement)
      : size_(size), patience_(patience), movement_(movement) {}

  std::shared_ptr<Meeting> join(int rank, Call call);
  void wait(Meeting& meeting, int rank);
  // Ends all waits, present and later.
  void give_up() {
    const std::lock_guard lock(mutex_);
    given_up_ = true;
    changed_.notify_all();
  }

 private:
  using Key = std::pair<std::string, std::int64_t>;
  void move(const Meeting& meeting, int to) const;

  int size_;
  std::chrono::milliseconds patience_;
  Movement movement_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, std::shared_ptr<Meeting>> meetings_;
  bool given_up_ = false;
};

}  // namespace strata::fakes
