#pragma once
#include <cstddef>
#include <optional>
#include <string>

#include "numa_node.hpp"

namespace strata::offload_cpu {

// Bytes that this process can still allocate without swapping: the kernel's MemAvailable, or less if the process's
// cgroup limits allow less. `root` is prefixed to /proc and /sys. Throws EnvironmentError if the kernel does not report
// it.
std::size_t available_memory(const std::string& root = "");

// A lock for all processes of this host, so that no other process takes the same memory between checking and allocating
// it. Locks the folder /dev/shm; ends with the process. The constructor waits.
class HostMemoryTurn {
 public:
  HostMemoryTurn();
  ~HostMemoryTurn();
  HostMemoryTurn(const HostMemoryTurn&) = delete;
  HostMemoryTurn& operator=(const HostMemoryTurn&) = delete;

 private:
  int folder_;
};

// Page-aligned, zeroed host memory with every page allocated.
class HostRegion {
 public:
  // Takes the lock. The pages are those of the NUMA node, where one is given, as long as it has any. Throws
  // EnvironmentError with the bytes needed and available if there is not enough.
  explicit HostRegion(std::size_t bytes, std::optional<int> node = own_node());
  ~HostRegion();
  HostRegion(const HostRegion&) = delete;
  HostRegion& operator=(const HostRegion&) = delete;
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  // The system's refusal of the node; empty: none.
  const std::string& node_refused() const { return node_refused_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
  std::string node_refused_;
};

}  // namespace strata::offload_cpu
