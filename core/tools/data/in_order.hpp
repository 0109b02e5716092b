#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace strata::cli {

// Threads that process inputs; outputs come in the order of the inputs. With one thread the caller's does all work.
template <typename Input, typename Output>
class InOrder {
 public:
  using Work = std::function<Output(const Input&)>;

  // `make_work` is called once for each thread, on the caller's.
  InOrder(int threads, const std::function<Work()>& make_work) : most_(threads > 1 ? 2 * threads : 1) {
    if (threads <= 1) own_work_ = make_work();
    for (int thread = 0; threads > 1 && thread < threads; ++thread) {
      threads_.emplace_back([this, work = make_work()] { run(work); });
    }
  }
  InOrder(const InOrder&) = delete;
  InOrder& operator=(const InOrder&) = delete;
  ~InOrder() {
    {
      const std::lock_guard lock(mutex_);
      waiting_.clear();
      ends_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  bool full() const { return static_cast<int>(results_.size()) >= most_; }
  bool empty() const { return results_.empty(); }

  void put(Input input) {
    std::packaged_task<Output(const Work&)> task(
        [input = std::move(input)](const Work& work) mutable { return work(std::exchange(input, {})); });
    results_.push_back(task.get_future());
    if (own_work_) return task(own_work_);
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

  // Waits for the output of the oldest input, and throws the exception of its work.
  Output take() {
    std::future<Output> result = std::move(results_.front());
    results_.pop_front();
    return result.get();
  }

 private:
  void run(const Work& work) {
    for (;;) {
      std::packaged_task<Output(const Work&)> task;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return ends_ || !waiting_.empty(); });
        if (ends_) return;
        task = std::move(waiting_.front());
        waiting_.pop_front();
      }
      task(work);
    }
  }

  int most_;
  Work own_work_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<Output(const Work&)>> waiting_;
  bool ends_ = false;
  std::deque<std::future<Output>> results_;  // used by the caller's thread only
  std::vector<std::thread> threads_;         // last member: the threads use the others
};

}  // namespace strata::cli
