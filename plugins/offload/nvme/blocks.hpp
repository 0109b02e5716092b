// A transfer is cut into blocks, each within one file. Workers carry blocks out; the transfer ends with its last one.
#pragma once
#include <strata/offload_device.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace strata::offload_nvme {

// The alignment of addresses, offsets and sizes that O_DIRECT needs on every file system.
constexpr std::size_t alignment = 4096;

struct File {
  int descriptor = -1;
  std::string folder;  // it has no name of its own
};

// Checksums of a region, one for each `alignment` bytes.
using Checksums = std::vector<std::uint64_t>;
std::uint64_t checksum_of_zeros();

// Shared by all that moves blocks to or from the same folders. Once no block has ended for too long the disk is stuck:
// waits for it end, no other block begins, and no worker touches the memory of a block.
struct Progress {
  std::atomic<std::uint64_t> ended = 0;  // blocks
  std::atomic<bool> stuck = false;       // and stays so
};
// That of these folders. Once they are stuck it is a new one, for a later run.
std::shared_ptr<Progress> progress_of(const std::string& folders);

// Where a transfer stands. Workers change it, the host waits for it.
class TransferState {
 public:
  TransferState(std::size_t blocks, std::shared_ptr<Progress> progress, std::chrono::seconds patience)
      : blocks_(blocks), progress_(std::move(progress)), patience_(patience) {}
  // By workers. `error`: what went wrong, or empty.
  void block_ended(const std::string& error);
  // Throws EnvironmentError with the first error, or where no block of any transfer ended for as long as `patience`:
  // the disk is stuck then, and every other wait throws at once.
  void wait();

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t blocks_;  // under way
  std::string error_;
  std::shared_ptr<Progress> progress_;
  std::chrono::seconds patience_;
};

class Block {
 public:
  Block(std::shared_ptr<TransferState> transfer, const File& file, std::uint64_t offset, Span memory, bool writes,
        std::shared_ptr<std::uint64_t> checksums);

  // The part still to move.
  int descriptor() const { return file_->descriptor; }
  bool writes() const { return writes_; }
  std::byte* memory() const { return memory_ + moved_; }
  std::size_t bytes() const { return bytes_ - moved_; }
  std::uint64_t offset() const { return offset_ + moved_; }

  // Before the first part of it moves.
  void begin();
  // The argument is the bytes that the system moved, or an error as a negative number. Returns true if the block has
  // ended and its transfer was notified; false: the rest is still to move.
  bool moved(std::int64_t result);

 private:
  std::string failed(const std::string& why) const;
  std::string check() const;

  std::shared_ptr<TransferState> transfer_;
  const File* file_;
  std::uint64_t offset_;
  std::byte* memory_;
  std::size_t bytes_, moved_ = 0;
  bool writes_;
  std::shared_ptr<std::uint64_t> checksums_;  // of its first unit; null: none are kept
};

// Threads that carry blocks out in the background, in any order. Where the disk is stuck its threads stay in the
// kernel: the workers, and the files, are then kept until the process ends.
class BlockWorkers {
 public:
  virtual ~BlockWorkers() = default;  // ends what was given first
  virtual void add(std::vector<Block> blocks) = 0;
};

// One thread with `depth` blocks in the kernel's ring. Null where the system refuses a ring; `cause` gets the reason.
std::unique_ptr<BlockWorkers> make_uring_worker(unsigned depth, std::shared_ptr<Progress> progress, std::string& cause);
// `count` threads with one block each.
std::unique_ptr<BlockWorkers> make_thread_workers(unsigned count, std::shared_ptr<Progress> progress);

}  // namespace strata::offload_nvme
