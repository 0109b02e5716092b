#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "offload/checks.hpp"
#include "offload/device_under_test.hpp"

namespace strata::conformance::offload_checks {

namespace {

// What this process and the device's folder hold now.
struct Holdings {
  std::size_t resident = 0;  // bytes of memory
  std::size_t descriptors = 0;
  std::size_t threads = 0;
  std::size_t files = 0;  // bytes in the device's folder
};

std::size_t entries(const char* folder) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

Holdings holdings(const DeviceUnderTest& device) {
  Holdings now;
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> now.resident;
  now.resident *= static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  now.descriptors = entries("/proc/self/fd");
  now.threads = entries("/proc/self/task");
  if (device.folder().empty()) return now;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(device.folder()))
    if (entry.is_regular_file()) now.files += entry.file_size();
  return now;
}

void compare(const Holdings& before, const Holdings& after, std::size_t memory_allowed, const std::string& what) {
  const auto grown = [&](const char* name, std::size_t from, std::size_t to, std::size_t allowed) {
    require(to <= from + allowed,
            what + " the process's " + name + " grew from " + std::to_string(from) + " to " + std::to_string(to));
  };
  grown("resident memory", before.resident, after.resident, memory_allowed);
  grown("open file descriptors", before.descriptors, after.descriptors, 0);
  grown("threads", before.threads, after.threads, 0);
  grown("files in its folder", before.files, after.files, memory_allowed);
}

}  // namespace

void free_gives_back(Subject& subject) {
  const DeviceUnderTest device(subject);
  const std::size_t bytes = device.down(std::size_t{16} << 20);
  Bytes source = device.buffer(bytes);
  source.fill(std::byte{0x42});
  const auto round = [&] {
    const Region region = device->reserve(bytes);
    device.write(region, 0, source);
    device->free(region);
  };
  for (int i = 0; i < 8; ++i) round();
  const Holdings before = holdings(device);
  for (int i = 0; i < 48; ++i) round();
  compare(before, holdings(device), 3 * bytes, "over 48 times reserve() of 16 MiB, write and free()");
}

void leaks_nothing(Subject& subject) {
  const DeviceUnderTest device(subject);
  const std::size_t bytes = std::max(device.down(65'536), device.limits().alignment);
  const Region region = device->reserve(bytes);
  Bytes buffer = device.buffer(bytes);
  buffer.fill(std::byte{0x42});
  const auto round = [&](int count) {
    for (int i = 0; i < count; ++i) {
      device->write(region, 0, buffer.span())->wait();
      device->read(region, 0, buffer.span())->wait();
    }
  };
  round(100);
  const Holdings before = holdings(device);
  round(400);
  compare(before, holdings(device), std::size_t{4} << 20, "over 400 writes and reads of 64 KiB");
  device->free(region);
}

}  // namespace strata::conformance::offload_checks
