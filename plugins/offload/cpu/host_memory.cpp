#include "host_memory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

namespace strata::offload_cpu {
namespace {

std::optional<std::size_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::size_t value = 0;
  if (file >> value) return value;
  return std::nullopt;  // no such file, or "max"
}

// The memory left by the limits of the process's control group (version 2) and of those above it. File pages count as
// used there although the kernel gives them up: they are added back.
std::size_t left_by_control_group(const std::string& root) {
  std::size_t left = std::numeric_limits<std::size_t>::max();
  std::ifstream membership(root + "/proc/self/cgroup");
  for (std::string line; std::getline(membership, line);) {
    if (line.rfind("0::", 0) != 0) continue;
    for (std::string group = line.substr(3);; group.resize(group.find_last_of('/'))) {
      const std::string folder = root + "/sys/fs/cgroup" + group;
      const auto limit = number_in(folder + "/memory.max"), used = number_in(folder + "/memory.current");
      if (limit && used) {
        std::size_t file_pages = 0;
        std::ifstream statistics(folder + "/memory.stat");
        for (std::string name, value; statistics >> name >> value;) {
          if (name == "inactive_file" || name == "active_file") file_pages += std::stoull(value);
        }
        const std::size_t held = *used - std::min(*used, file_pages);
        left = std::min(left, *limit - std::min(*limit, held));
      }
      if (group.find_last_of('/') == std::string::npos) break;
    }
  }
  return left;
}

std::string mebibytes(std::size_t bytes) {
  return format("{} MiB ({} bytes)", bytes >> 20, bytes);
}

}  // namespace

std::size_t available_memory(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::size_t kibibytes = 0;
    if (words >> name >> kibibytes && name == "MemAvailable:")
      return std::min(kibibytes * 1024, left_by_control_group(root));
  }
  throw EnvironmentError("offload cpu: {}/proc/meminfo has no MemAvailable, so the free host memory is unknown", root);
}

HostMemoryTurn::HostMemoryTurn() : folder_(open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  int status = -1;
  do {
    status = flock(folder_, LOCK_EX);
  } while (status != 0 && errno == EINTR);
  if (status == 0) return;
  const std::string reason = std::strerror(errno);
  if (folder_ >= 0) close(folder_);
  throw EnvironmentError(
      "offload cpu: cannot lock /dev/shm, through which ranks reserve host memory one after another: {}; mount a tmpfs "
      "there",
      reason);
}

HostMemoryTurn::~HostMemoryTurn() {
  close(folder_);
}

HostRegion::HostRegion(std::size_t bytes, std::optional<int> node) : bytes_(bytes) {
  if (bytes == 0) throw Bug("offload cpu: a region has at least one byte");
  const HostMemoryTurn turn;
  const std::size_t available = available_memory();
  if (bytes > available) {
    throw EnvironmentError(
        "offload cpu: {} of host memory are needed and {} are available; use fewer ranks on this host, offload less, "
        "or offload to disk",
        mebibytes(bytes), mebibytes(available));
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw EnvironmentError("offload cpu: cannot map {} of host memory: {}", mebibytes(bytes), std::strerror(errno));
  }
  data_ = static_cast<std::byte*>(memory);
  madvise(memory, bytes, MADV_HUGEPAGE);  // fewer page faults where the kernel has it; no harm where not
  if (node) node_refused_ = prefer_node(memory, bytes, *node);
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < bytes; at += page) data_[at] = std::byte{0};  // taken now, not at some later step
}

HostRegion::~HostRegion() {
  munmap(data_, bytes_);
}

}  // namespace strata::offload_cpu
