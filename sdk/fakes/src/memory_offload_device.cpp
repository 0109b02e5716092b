#include <strata/error.hpp>
#include <strata/fakes/memory_offload_device.hpp>

#include <atomic>
#include <cstring>
#include <utility>

namespace strata::fakes {

namespace {

class MemoryTransfer final : public Transfer {
 public:
  MemoryTransfer(std::shared_ptr<std::vector<std::byte>> memory, std::size_t at, Span span, bool is_write,
                 std::shared_ptr<std::atomic<int>> under_way, std::string failure)
      : memory_(std::move(memory)),
        at_(at),
        span_(span),
        is_write_(is_write),
        under_way_(std::move(under_way)),
        failure_(std::move(failure)) {
    ++*under_way_;
  }
  ~MemoryTransfer() override {
    if (!ended_) --*under_way_;
  }
  void wait() override {
    if (ended_) return;
    ended_ = true;
    --*under_way_;
    if (!failure_.empty()) throw EnvironmentError(failure_);
    if (span_.bytes == 0) return;
    std::byte* const inside = memory_->data() + at_;
    if (is_write_)
      std::memcpy(inside, span_.data, span_.bytes);
    else
      std::memcpy(span_.data, inside, span_.bytes);
  }

 private:
  std::shared_ptr<std::vector<std::byte>> memory_;
  std::size_t at_;
  Span span_;
  bool is_write_;
  std::shared_ptr<std::atomic<int>> under_way_;
  std::string failure_;
  bool ended_ = false;
};

}  // namespace

Region MemoryOffloadDevice::reserve(std::size_t bytes) {
  if (bytes > capacity_ - reserved())
    throw EnvironmentError("the memory offload device has {} bytes left, not {}", capacity_ - reserved(), bytes);
  const Region region{next_id_++, bytes};
  regions_[region.id] = std::make_shared<std::vector<std::byte>>(bytes);
  return region;
}

void MemoryOffloadDevice::free(Region region) {
  if (regions_.erase(region.id) == 0) throw Bug("freed an offload region that is not reserved");
}

std::size_t MemoryOffloadDevice::reserved() const {
  std::size_t bytes = 0;
  for (const auto& [id, memory] : regions_) bytes += memory->size();
  return bytes;
}

void MemoryOffloadDevice::fail_after(int transfers, std::string text) {
  fails_after_ = transfers;
  failure_ = std::move(text);
}

std::unique_ptr<Transfer> MemoryOffloadDevice::write(Region region, std::size_t at, Span source) {
  return start(region, at, source, true);
}

std::unique_ptr<Transfer> MemoryOffloadDevice::read(Region region, std::size_t at, Span target) {
  return start(region, at, target, false);
}

std::unique_ptr<Transfer> MemoryOffloadDevice::start(Region region, std::size_t at, Span span, bool is_write) {
  const auto found = regions_.find(region.id);
  strata_check(found != regions_.end(), "a transfer of an offload region that is not reserved");
  strata_check(at <= found->second->size() && span.bytes <= found->second->size() - at,
               "a transfer beyond the end of its offload region");
  strata_check(at % limits_.alignment == 0 && span.bytes % limits_.alignment == 0 &&
                   reinterpret_cast<std::uintptr_t>(span.data) % limits_.alignment == 0,
               "a transfer that breaks the device's alignment");
  const bool fails = fails_after_ == 0;
  if (fails_after_ >= 0) --fails_after_;
  return std::make_unique<MemoryTransfer>(found->second, at, span, is_write, under_way_, fails ? failure_ : "");
}

}  // namespace strata::fakes
