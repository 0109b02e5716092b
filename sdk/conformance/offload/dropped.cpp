#include <sys/mman.h>
#include <strata/error.hpp>

#include <algorithm>
#include <thread>

#include "offload/checks.hpp"
#include "offload/device_under_test.hpp"

namespace strata::conformance::offload_checks {

namespace {

// Anonymous memory of its own pages, which fault once it is given back.
class Pages {
 public:
  explicit Pages(std::size_t bytes) : bytes_(bytes) {
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw EnvironmentError("the kit cannot allocate a buffer");
    data_ = static_cast<std::byte*>(memory);
  }
  ~Pages() { munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() const { return data_; }
  Span span() const { return {data_, bytes_}; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

}  // namespace

void dropped_transfer(Subject& subject) {
  const DeviceUnderTest device(subject);
  const std::size_t bytes = std::max<std::size_t>(device.down(1 << 20), device.limits().alignment);
  const std::vector<std::byte> zeros(bytes);
  for (int round = 0; round < 12; ++round) {
    const Region region = device->reserve(bytes);
    {
      const Pages source(bytes);
      std::fill_n(source.data(), bytes, std::byte{0x77});
      device->write(region, 0, source.span()).reset();
    }  // read from now on, it is a fault
    device->free(region);
    const Region next = device->reserve(bytes);
    const Pages target(bytes);
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    device.expect(next, 0, zeros.data(), bytes,
                  "a new region after a write was dropped without wait() and its region freed; the dropped write "
                  "must not continue");
    device->read(next, 0, target.span()).reset();
    std::fill_n(target.data(), bytes, std::byte{0x99});
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    require(std::all_of(target.data(), target.data() + bytes, [](std::byte byte) { return byte == std::byte{0x99}; }),
            "a read that was dropped without wait() filled its target later, when the memory may have another use");
    device->free(next);
  }
}

void limits_are_sane(Subject& subject) {
  const auto device = DeviceUnderTest(subject);
  const OffloadLimits limits = device->limits();
  require(device->tier() != Tier::Device,
          "tier() is Device; an offload device holds bytes on another tier, Host or Disk");
  require(
      limits.alignment > 0 && (limits.alignment & (limits.alignment - 1)) == 0,
      "limits().alignment is " + std::to_string(limits.alignment) + "; it must be a power of two, 1 for no alignment");
  require(limits.transfers_in_flight >= 1,
          "limits().transfers_in_flight is " + std::to_string(limits.transfers_in_flight) + "; it must be at least 1");
}

}  // namespace strata::conformance::offload_checks
