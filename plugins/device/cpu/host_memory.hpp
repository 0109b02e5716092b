#pragma once
#include <strata/device.hpp>

#include <filesystem>

namespace strata::cpu_device {

// What this process can have of the host's memory: MemTotal and MemAvailable of the kernel, or less where a cgroup
// (version 1 or 2, any level above this process) sets a limit; file pages that a cgroup can drop count as available.
// `root` stands for "/".
DeviceMemory host_memory(const std::filesystem::path& root = "/");

}  // namespace strata::cpu_device
