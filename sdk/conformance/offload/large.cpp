#include <sys/mman.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "conformance/offload/checks.hpp"
#include "conformance/offload/device_under_test.hpp"

namespace strata::conformance::offload_checks {

namespace {

constexpr std::size_t gibibyte = std::size_t{1} << 30;
constexpr std::size_t mebibyte = std::size_t{1} << 20;

std::size_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  std::size_t kibibytes = 0;
  while (file >> name >> kibibytes && name != "MemAvailable:") std::getline(file, unit);
  return name == "MemAvailable:" ? kibibytes * 1024 : 0;
}

void check_space(const DeviceUnderTest& device, std::size_t bytes) {
  const bool host = device->tier() == Tier::Host;
  if (!host && device.folder().empty()) return;  // reserve() itself will say
  const std::size_t there = host ? available_memory() : std::filesystem::space(device.folder()).available;
  if (there < bytes)
    throw Skip("the case needs " + std::to_string(bytes / mebibyte) + " MiB of " +
               (host ? "memory" : "disk in " + device.folder().string()) + ", but only " +
               std::to_string(there / mebibyte) + " MiB are available");
}

// A long range of addresses behind which the same few pages lie again and again: a source of more than 2^31 bytes in
// little memory.
class Repeated {
 public:
  // As many of `pattern` (whole pages), one after the other, as `bytes` need; begins at a multiple of `alignment`.
  Repeated(const Bytes& pattern, std::size_t bytes, std::size_t alignment)
      : bytes_((bytes / pattern.size() + 1) * pattern.size()) {
    const int file = memfd_create("strata_pattern", MFD_CLOEXEC);
    if (file < 0 || ::write(file, pattern.data(), pattern.size()) != static_cast<ssize_t>(pattern.size()))
      throw EnvironmentError("the kit cannot make a pattern in memory: {}", std::strerror(errno));
    reserved_ = bytes_ + alignment;
    range_ = mmap(nullptr, reserved_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range_ == MAP_FAILED) throw EnvironmentError("the kit cannot reserve {} bytes of address space", reserved_);
    const auto address = reinterpret_cast<std::uintptr_t>(range_);
    data_ = static_cast<std::byte*>(range_) + (alignment - address % alignment) % alignment;
    for (std::size_t at = 0; at < bytes_; at += pattern.size())
      if (mmap(data_ + at, pattern.size(), PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
        throw EnvironmentError("the kit cannot map its pattern: {}", std::strerror(errno));
    close(file);
  }
  ~Repeated() { munmap(range_, reserved_); }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::size_t bytes_;
  std::size_t reserved_ = 0;
  void* range_ = nullptr;
  std::byte* data_ = nullptr;
};

}  // namespace

void three_gibibytes(Subject& subject) {
  const DeviceUnderTest device(subject);
  std::mt19937_64 random = subject.random("offload.three_gibibytes");
  check_space(device, 4 * gibibyte);
  Region region;
  try {
    region = device->reserve(3 * gibibyte);
  } catch (const EnvironmentError& error) {
    throw Skip(std::string("the device does not offer 3 GiB: ") + error.what());
  }
  std::vector<std::pair<std::size_t, Bytes>> written;
  for (const std::size_t at :
       {std::size_t{0}, gibibyte - mebibyte / 2, 2 * gibibyte - mebibyte / 2, 3 * gibibyte - mebibyte}) {
    Bytes& source = written.emplace_back(at, device.buffer(mebibyte)).second;
    source.randomize(random);
    device.write(region, at, source);
  }
  for (const auto& [at, source] : written)
    device.expect(region, at, source.data(), source.size(), "1 MiB written at four places of a region of 3 GiB");
  written.clear();
  const std::size_t page = std::max<std::size_t>(device.limits().alignment, 4096);
  Bytes pattern = device.buffer(7681 * page);  // about 30 MiB, and no power of two divides it far
  pattern.randomize(random);
  const std::size_t bytes = 2 * gibibyte + 3 * page, at = gibibyte / 2;
  const Repeated source(pattern, bytes, page);
  device->write(region, at, {source.data(), bytes})->wait();
  // Both ends, and a MiB of every 64 with those around 2^31.
  for (std::size_t done = 0; done < bytes; done += 64 * mebibyte) {
    const std::size_t begin = done > 0 ? done - page : 0;
    device.expect(region, at + begin, source.data() + begin, std::min(mebibyte, bytes - begin),
                  "one write of " + std::to_string(bytes) + " bytes at " + std::to_string(at));
  }
  device->free(region);
}

}  // namespace strata::conformance::offload_checks
