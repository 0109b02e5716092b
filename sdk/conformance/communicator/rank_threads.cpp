#include "conformance/communicator/rank_threads.hpp"

#include <ATen/Parallel.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "conformance/runner/case.hpp"

namespace strata::conformance {

struct RankThreads::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::function<void(int)> work;
  int ranks = 0;
  int round = 0;
  int at_work = 0;
  bool is_over = false;
  std::exception_ptr error;

  void serve(int rank) {
    at::set_num_threads(1);
    std::unique_lock lock(mutex);
    for (int served = 0;; ++served) {
      changed.wait(lock, [&] { return is_over || round > served; });
      if (is_over) return;
      lock.unlock();
      std::exception_ptr thrown;
      try {
        work(rank);
      } catch (...) {
        thrown = std::current_exception();
      }
      lock.lock();
      if (error == nullptr) error = thrown;
      --at_work;
      changed.notify_all();
    }
  }
};

RankThreads::RankThreads(int ranks) : state_(std::make_shared<State>()) {
  state_->ranks = ranks;
  for (int rank = 0; rank < ranks; ++rank) std::thread([state = state_, rank] { state->serve(rank); }).detach();
}

RankThreads::~RankThreads() {
  const std::lock_guard lock(state_->mutex);
  state_->is_over = true;
  state_->changed.notify_all();
}

void RankThreads::run(const std::string& what, std::chrono::seconds patience, const std::function<void(int)>& work) {
  std::unique_lock lock(state_->mutex);
  state_->work = work;
  state_->at_work = state_->ranks;
  ++state_->round;
  state_->changed.notify_all();
  const bool ended = state_->changed.wait_for(lock, patience, [&] { return state_->at_work == 0; });
  require(ended, what + " has not returned after " + std::to_string(patience.count()) + " s");
  const std::exception_ptr error = std::exchange(state_->error, nullptr);
  if (error != nullptr) std::rethrow_exception(error);
}

}  // namespace strata::conformance
