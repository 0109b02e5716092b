#pragma once
#include <cstddef>
#include <string>

namespace strata::offload_cpu {

// Bytes that this process could still take without swapping: the kernel's MemAvailable, or what the limits of the
// process's control group leave where that is less. `root` stands before /proc and /sys. Throws EnvironmentError when
// the kernel does not say.
std::size_t available_memory(const std::string& root = "");

// While it lives no other process of this host has one: between asking how much memory there is and taking it, nobody
// else may be told of the same bytes. A lock of the folder /dev/shm, which ends with its process. Waits.
class HostMemoryTurn {
 public:
  HostMemoryTurn();
  ~HostMemoryTurn();
  HostMemoryTurn(const HostMemoryTurn&) = delete;
  HostMemoryTurn& operator=(const HostMemoryTurn&) = delete;

 private:
  int folder_;
};

// Zeroed host memory beginning at a page, every page of it taken from the kernel.
class HostRegion {
 public:
  // In a turn of its own. Throws EnvironmentError with both figures when there is not that much.
  explicit HostRegion(std::size_t bytes);
  ~HostRegion();
  HostRegion(const HostRegion&) = delete;
  HostRegion& operator=(const HostRegion&) = delete;
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

}  // namespace strata::offload_cpu
