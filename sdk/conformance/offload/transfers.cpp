#include <sys/mman.h>
#include <strata/error.hpp>

#include <algorithm>
#include <thread>

#include "offload/checks.hpp"
#include "offload/device_under_test.hpp"

namespace strata::conformance::offload_checks {

namespace {

// As many buffers of random bytes, one behind the other in a region.
struct Parts {
  std::vector<Bytes> sources;
  std::size_t bytes = 0;  // of each

  Parts(const DeviceUnderTest& device, std::size_t count, std::size_t about, std::mt19937_64& random)
      : bytes(std::max(device.down(about), device.limits().alignment)) {
    for (std::size_t i = 0; i < count; ++i) {
      sources.push_back(device.buffer(bytes));
      sources.back().randomize(random);
    }
  }
  std::size_t total() const { return sources.size() * bytes; }
};

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

void wait_means_done(Subject& subject) {
  const DeviceUnderTest device(subject);
  std::mt19937_64 random = subject.random("offload.wait_means_done");
  const auto count = static_cast<std::size_t>(std::clamp(device.limits().transfers_in_flight, 1, 4));
  for (int round = 0; round < 8; ++round) {
    Parts parts(device, count, 2 << 20, random);
    const Region region = device->reserve(parts.total());
    std::vector<Bytes> kept;
    std::vector<std::unique_ptr<Transfer>> transfers;
    for (std::size_t i = 0; i < count; ++i) {
      kept.push_back(device.buffer(parts.bytes));
      std::copy_n(parts.sources[i].data(), parts.bytes, kept.back().data());
      transfers.push_back(device->write(region, i * parts.bytes, parts.sources[i].span()));
    }
    for (std::size_t i = count; i-- > 0;) {  // the last first: most is left to do
      transfers[i]->wait();
      std::fill_n(std::reverse_iterator(parts.sources[i].data() + parts.bytes), parts.bytes, std::byte{0xEE});
    }
    for (std::size_t i = 0; i < count; ++i)
      device.expect(
          region, i * parts.bytes, kept[i].data(), parts.bytes,
          "a buffer was overwritten after wait() of its write had returned, and the region holds the new bytes");
    transfers.clear();
    std::vector<Bytes> targets;
    for (std::size_t i = 0; i < count; ++i) {
      targets.push_back(device.buffer(parts.bytes));
      targets.back().fill(std::byte{0x11});
      transfers.push_back(device->read(region, i * parts.bytes, targets.back().span()));
    }
    for (std::size_t i = count; i-- > 0;) {
      transfers[i]->wait();
      // From its end: what is filled last is looked at first.
      std::size_t wrong = parts.bytes;
      while (wrong > 0 && targets[i].data()[wrong - 1] == kept[i].data()[wrong - 1]) --wrong;
      if (wrong == 0) continue;
      std::this_thread::sleep_for(
          std::chrono::milliseconds(300));  // what is still under way must not outlive the targets
      throw Failure("wait() of a read of " + std::to_string(parts.bytes) + " bytes returned before byte " +
                    std::to_string(wrong - 1) + " of its target was filled");
    }
    device->free(region);
  }
}

void many_in_flight(Subject& subject) {
  const DeviceUnderTest device(subject);
  std::mt19937_64 random = subject.random("offload.many_in_flight");
  const int limit = device.limits().transfers_in_flight;
  const auto count = static_cast<std::size_t>(std::clamp(4 * std::clamp(limit, 1, 1000) + 3, 19, 515));
  Parts parts(device, count, 10'000 + random() % 20'000, random);
  const std::string what = std::to_string(count) + " transfers started before the first wait (limits() allows " +
                           std::to_string(limit) + " in flight; starting more may block until one ends)";
  const Region region = device->reserve(parts.total());
  for (const bool last_first : {true, false}) {
    for (Bytes& source : parts.sources) source.randomize(random);
    std::vector<std::unique_ptr<Transfer>> transfers;
    for (std::size_t i = 0; i < count; ++i)
      transfers.push_back(device->write(region, i * parts.bytes, parts.sources[i].span()));
    if (last_first) std::reverse(transfers.begin(), transfers.end());
    for (const auto& transfer : transfers) transfer->wait();
    transfers.clear();
    std::vector<Bytes> targets;
    for (std::size_t i = 0; i < count; ++i) {
      targets.push_back(device.buffer(parts.bytes));
      targets.back().fill(std::byte{0x11});
      transfers.push_back(device->read(region, i * parts.bytes, targets.back().span()));
    }
    if (last_first) std::reverse(transfers.begin(), transfers.end());
    for (const auto& transfer : transfers) transfer->wait();
    for (std::size_t i = 0; i < count; ++i)
      require(first_difference(targets[i].data(), parts.sources[i].data(), parts.bytes) == parts.bytes,
              what + ": transfer " + std::to_string(i + 1) + " of them does not give the bytes that were written");
  }
  device->free(region);
}

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

void one_thread_after_another(Subject& subject) {
  const DeviceUnderTest device(subject);
  std::mt19937_64 random = subject.random("offload.one_thread_after_another");
  Parts parts(device, 1, 300'000, random);
  const Region region = device->reserve(parts.total());
  for (int round = 0; round < 4; ++round) {
    parts.sources[0].randomize(random);
    std::unique_ptr<Transfer> transfer;
    std::string error;
    const auto on_a_thread = [&](const std::function<void()>& work) {
      std::thread([&] {
        try {
          work();
        } catch (const std::exception& thrown) {
          error = thrown.what();
        }
      }).join();
      if (!error.empty()) throw Failure("threads that use the device one after another: " + error);
    };
    on_a_thread([&] { transfer = device->write(region, 0, parts.sources[0].span()); });
    on_a_thread([&] { transfer->wait(); });
    on_a_thread([&] {
      device.expect(region, 0, parts.sources[0].data(), parts.bytes,
                    "written by one thread, waited for by a second, read by a third");
    });
  }
  device->free(region);
}

}  // namespace strata::conformance::offload_checks
