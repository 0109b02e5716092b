#pragma once
#include <strata/device.hpp>

#include <filesystem>

namespace strata::cpu_device {

// The host memory that this process can use: the kernel's MemTotal and MemAvailable, or less if a cgroup (version 1 or
// 2, any level above this process) sets a limit. File pages that a cgroup can drop count as available. `root` replaces
// "/" in tests.
DeviceMemory host_memory(const std::filesystem::path& root = "/");

}  // namespace strata::cpu_device
