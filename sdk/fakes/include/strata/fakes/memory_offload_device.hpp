// An offload device in host memory, as strict as the strictest real one: bytes move only in wait(), so code that
// forgets to wait reads old bytes; transfers of one region happen in the order of their waits; and it can be made to
// fail.
#pragma once
#include <strata/offload_device.hpp>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace strata::fakes {

// OffloadDevice in host memory, as thread-safe as the contract requires.
class MemoryOffloadDevice final : public OffloadDevice {
 public:
  explicit MemoryOffloadDevice(OffloadLimits limits = {}, std::size_t capacity = std::size_t{1} << 30)
      : limits_(limits), capacity_(capacity) {}

  Tier tier() const override { return Tier::Host; }
  OffloadLimits limits() const override { return limits_; }
  Region reserve(std::size_t bytes) override;
  void free(Region region) override;
  std::unique_ptr<Transfer> write(Region region, std::size_t at, Span source) override;
  std::unique_ptr<Transfer> read(Region region, std::size_t at, Span target) override;

  // Makes the transfer after the next `transfers` throw EnvironmentError with `text` in wait().
  void fail_after(int transfers, std::string text);
  // Returns the number of transfers started but not waited for.
  int under_way() const { return *under_way_; }
  std::size_t reserved() const;  // bytes

 private:
  std::unique_ptr<Transfer> start(Region region, std::size_t at, Span span, bool is_write);

  OffloadLimits limits_;
  std::size_t capacity_;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, std::shared_ptr<std::vector<std::byte>>> regions_;
  std::shared_ptr<std::atomic<int>> under_way_ = std::make_shared<std::atomic<int>>(0);
  int fails_after_ = -1;
  std::string failure_;
};

}  // namespace strata::fakes
