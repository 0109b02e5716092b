#include <unistd.h>

#include <cerrno>
#include <deque>
#include <thread>

#include "blocks.hpp"

namespace strata::offload_nvme {
namespace {

class ThreadWorkers final : public BlockWorkers {
 public:
  ThreadWorkers(unsigned count, std::shared_ptr<Progress> progress) : progress_(std::move(progress)) {
    for (unsigned i = 0; i < count; ++i) threads_.emplace_back([this] { run(); });
  }

  ~ThreadWorkers() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    given_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void add(std::vector<Block> blocks) override {
    const std::lock_guard lock(mutex_);
    for (Block& block : blocks) blocks_.push_back(std::move(block));
    given_.notify_all();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      given_.wait(lock, [this] { return stop_ || !blocks_.empty(); });
      if (blocks_.empty() || progress_->stuck) return;
      Block block = std::move(blocks_.front());
      blocks_.pop_front();
      lock.unlock();
      block.begin();
      std::int64_t result = 0;
      do {
        const auto offset = static_cast<off_t>(block.offset());
        result = block.writes() ? pwrite(block.descriptor(), block.memory(), block.bytes(), offset)
                                : pread(block.descriptor(), block.memory(), block.bytes(), offset);
        if (progress_->stuck) return;
      } while (!block.moved(result < 0 ? -errno : result));
      lock.lock();
    }
  }

  std::shared_ptr<Progress> progress_;
  std::mutex mutex_;
  std::condition_variable given_;
  std::deque<Block> blocks_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<BlockWorkers> make_thread_workers(unsigned count, std::shared_ptr<Progress> progress) {
  return std::make_unique<ThreadWorkers>(count, std::move(progress));
}

}  // namespace strata::offload_nvme
