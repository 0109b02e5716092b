#include "blocks.hpp"

#include <strata/error.hpp>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <map>

namespace strata::offload_nvme {

namespace {
std::uint64_t checksum(const std::byte* unit) {
  return XXH3_64bits(unit, alignment);
}
}  // namespace

std::uint64_t checksum_of_zeros() {
  return checksum(std::vector<std::byte>(alignment).data());
}

std::shared_ptr<Progress> progress_of(const std::string& folders) {
  static std::mutex mutex;
  static auto& all = *new std::map<std::string, std::weak_ptr<Progress>>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<Progress> progress = all[folders].lock();
  if (progress == nullptr || progress->stuck) all[folders] = progress = std::make_shared<Progress>();
  return progress;
}

void TransferState::block_ended(const std::string& error) {
  progress_->ended.fetch_add(1);
  const std::lock_guard lock(mutex_);
  if (error_.empty()) error_ = error;
  if (--blocks_ == 0) ended_.notify_all();
}

void TransferState::wait() {
  std::unique_lock lock(mutex_);
  std::uint64_t seen = progress_->ended;
  auto since = std::chrono::steady_clock::now();
  while (blocks_ > 0) {
    if (progress_->stuck)
      throw EnvironmentError(
          "offload nvme: the disk has completed no transfer for {} s; check the system's log, and raise timeout_s if "
          "the disk is only slow",
          patience_.count());
    ended_.wait_for(lock, std::chrono::seconds(1));
    const auto now = std::chrono::steady_clock::now();
    if (const std::uint64_t ended = progress_->ended; ended != seen) {
      seen = ended;
      since = now;
    } else if (blocks_ > 0 && now - since > patience_) {
      progress_->stuck = true;
    }
  }
  if (!error_.empty()) throw EnvironmentError(error_);
}

Block::Block(std::shared_ptr<TransferState> transfer, const File& file, std::uint64_t offset, Span memory, bool writes,
             std::shared_ptr<std::uint64_t> checksums)
    : transfer_(std::move(transfer)),
      file_(&file),
      offset_(offset),
      memory_(static_cast<std::byte*>(memory.data)),
      bytes_(memory.bytes),
      writes_(writes),
      checksums_(std::move(checksums)) {}

void Block::begin() {
  if (checksums_ == nullptr || !writes_) return;
  for (std::size_t unit = 0; unit < bytes_ / alignment; ++unit)
    checksums_.get()[unit] = checksum(memory_ + unit * alignment);
}

bool Block::moved(std::int64_t result) {
  if (result == -EINTR || result == -EAGAIN) return false;
  std::string error;
  if (result < 0) {
    error = failed(std::strerror(static_cast<int>(-result)) + std::string(" (errno ") + std::to_string(-result) + ")");
  } else {
    const auto now = static_cast<std::size_t>(result);
    const std::size_t whole = now == bytes() ? now : now / alignment * alignment;  // the rest is to begin aligned
    if (whole == 0)
      error = failed(writes_ ? "the system transferred only " + std::to_string(now) + " bytes of it"
                             : "the file ends there: it was truncated");
    moved_ += whole;
    if (error.empty() && bytes() > 0) return false;
    if (error.empty()) error = check();
  }
  transfer_->block_ended(error);
  return true;
}

std::string Block::check() const {
  if (checksums_ == nullptr || writes_) return "";
  for (std::size_t unit = 0; unit < bytes_ / alignment; ++unit)
    if (checksums_.get()[unit] != checksum(memory_ + unit * alignment))
      return failed("the checksum of the " + std::to_string(alignment) + " bytes at " +
                    std::to_string(offset_ + unit * alignment) +
                    " differs from that of the written data: the disk or another program altered them");
  return "";
}

std::string Block::failed(const std::string& why) const {
  return format("offload nvme: a {} of {} bytes at {} of the file in {} failed: {}", writes_ ? "write" : "read",
                bytes(), offset(), file_->folder, why);
}

}  // namespace strata::offload_nvme
