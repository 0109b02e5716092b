#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>

#include "blocks.hpp"

namespace strata::offload_nvme {
namespace {

// The host adds blocks and wakes the thread through a descriptor; a read of it is always in the ring. Only the
// thread touches the ring from then on.
class UringWorker final : public BlockWorkers {
 public:
  UringWorker(io_uring ring, int wake, unsigned depth, std::shared_ptr<Progress> progress)
      : ring_(ring), wake_(wake), progress_(std::move(progress)), in_ring_(depth) {
    for (std::size_t slot = 0; slot < depth; ++slot) free_.push_back(slot);
    thread_ = std::thread([this] { run(); });
  }

  ~UringWorker() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake();
    thread_.join();
    io_uring_queue_exit(&ring_);
    close(wake_);
  }

  void add(std::vector<Block> blocks) override {
    {
      const std::lock_guard lock(mutex_);
      for (Block& block : blocks) blocks_.push_back(std::move(block));
    }
    wake();
  }

 private:
  static constexpr std::size_t wake_slot = ~std::size_t{0};

  void wake() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_, &one, sizeof one);  // fails only where it is awake anyway
  }

  void run() {
    io_uring_enable_rings(&ring_);
    listen();
    while (true) {
      const bool stop = take();
      if (stop && free_.size() == in_ring_.size()) return;
      // An error here is of the call: EINTR, or EAGAIN and EBUSY, after which completions are to be reaped first.
      io_uring_submit_and_wait(&ring_, 1);
      if (progress_->stuck) return;
      io_uring_cqe* ended = nullptr;
      while (io_uring_peek_cqe(&ring_, &ended) == 0) {
        const auto slot = static_cast<std::size_t>(ended->user_data);
        const std::int64_t result = ended->res;
        io_uring_cqe_seen(&ring_, ended);
        if (slot == wake_slot)
          listen();
        else if (in_ring_[slot]->moved(result))
          give_back(slot);
        else
          put(slot);
      }
    }
  }

  void listen() {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    io_uring_prep_read(entry, wake_, &woken_, sizeof woken_, 0);
    entry->user_data = wake_slot;
  }

  // Moves as many waiting blocks into the ring as there is room for. Whether the worker is to end.
  bool take() {
    while (!free_.empty()) {
      const std::unique_lock lock(mutex_);
      if (blocks_.empty()) return stop_;
      const std::size_t slot = free_.back();
      free_.pop_back();
      in_ring_[slot].emplace(std::move(blocks_.front()));
      blocks_.pop_front();
      in_ring_[slot]->begin();
      put(slot);
    }
    return false;
  }

  void put(std::size_t slot) {
    const Block& block = *in_ring_[slot];
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);  // there is one: the ring has room for all slots and the wake
    const auto bytes = static_cast<unsigned>(block.bytes());
    if (block.writes())
      io_uring_prep_write(entry, block.descriptor(), block.memory(), bytes, block.offset());
    else
      io_uring_prep_read(entry, block.descriptor(), block.memory(), bytes, block.offset());
    entry->user_data = slot;
  }

  void give_back(std::size_t slot) {
    in_ring_[slot].reset();
    free_.push_back(slot);
  }

  io_uring ring_;
  int wake_;
  std::shared_ptr<Progress> progress_;
  std::uint64_t woken_ = 0;
  std::vector<std::optional<Block>> in_ring_;  // by slot
  std::vector<std::size_t> free_;              // slots
  std::mutex mutex_;
  std::deque<Block> blocks_;  // that wait
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<BlockWorkers> make_uring_worker(unsigned depth, std::shared_ptr<Progress> progress,
                                                std::string& cause) {
  io_uring ring{};
  // Completions are handled when the thread asks for them, which spares interrupts; kernels before 6.1 lack
  // this.
  int status = io_uring_queue_init(2 * depth + 2, &ring,
                                   IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
  if (status == -EINVAL) status = io_uring_queue_init(2 * depth + 2, &ring, IORING_SETUP_R_DISABLED);
  if (status < 0) {
    cause = format("{} (errno {})", std::strerror(-status), -status);
    return nullptr;
  }
  const int wake = eventfd(0, EFD_CLOEXEC);
  if (wake < 0) {
    cause = std::string("no eventfd: ") + std::strerror(errno);
    io_uring_queue_exit(&ring);
    return nullptr;
  }
  return std::make_unique<UringWorker>(ring, wake, depth, std::move(progress));
}

}  // namespace strata::offload_nvme
