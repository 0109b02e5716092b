#include "host_memory.hpp"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

namespace strata::cpu_device {

namespace {

namespace fs = std::filesystem;

// The number after `name` in a file of "name number ..." lines.
std::optional<std::int64_t> field(const fs::path& file, const std::string& name) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    std::string key;
    std::int64_t value = 0;
    if (words >> key >> value && key == name) return value;
  }
  return std::nullopt;
}

// A file that holds one number; "max" is none.
std::optional<std::int64_t> number(const fs::path& file) {
  std::ifstream stream(file);
  std::int64_t value = 0;
  if (stream >> value) return value;
  return std::nullopt;
}

// The path of this process below the hierarchy of `controller` ("" for version 2), from lines "ID:CONTROLLERS:PATH".
std::optional<fs::path> cgroup_path(const fs::path& root, const std::string& controller) {
  std::ifstream stream(root / "proc/self/cgroup");
  for (std::string line; std::getline(stream, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool found =
        controller.empty() ? controllers == ",," : controllers.find("," + controller + ",") != std::string::npos;
    if (found) return fs::path(line.substr(second + 1)).relative_path();
  }
  return std::nullopt;
}

struct CgroupFiles {
  const char* limit;
  const char* usage;
  const char* droppable;  // in memory.stat
};

// Lowers `memory` to the limits of every level from `folder` up to `top`. Inside a container the own path may not exist
// below the mount; then only the levels that do are read.
void apply_limits(DeviceMemory& memory, const fs::path& top, const fs::path& below, const CgroupFiles& files) {
  for (fs::path folder = below;; folder = folder.parent_path()) {
    const fs::path level = top / folder;
    if (const auto limit = number(level / files.limit)) {
      const std::int64_t used =
          number(level / files.usage).value_or(0) - field(level / "memory.stat", files.droppable).value_or(0);
      memory.total = std::min(memory.total, *limit);
      memory.available =
          std::min(memory.available, std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, used)));
    }
    if (folder.empty()) return;
  }
}

}  // namespace

DeviceMemory host_memory(const fs::path& root) {
  constexpr std::int64_t kibi = 1024;
  DeviceMemory memory;
  memory.total = field(root / "proc/meminfo", "MemTotal:").value_or(0) * kibi;
  memory.available = field(root / "proc/meminfo", "MemAvailable:").value_or(0) * kibi;
  if (const auto below = cgroup_path(root, ""))
    apply_limits(memory, root / "sys/fs/cgroup", *below, {"memory.max", "memory.current", "inactive_file"});
  if (const auto below = cgroup_path(root, "memory"))
    apply_limits(memory, root / "sys/fs/cgroup/memory", *below,
                 {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"});
  return memory;
}

}  // namespace strata::cpu_device
