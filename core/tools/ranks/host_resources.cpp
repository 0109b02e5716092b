#include "tools/ranks/host_resources.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <strata/error.hpp>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "text/size.hpp"

namespace strata::ranks {

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

// The number in a file; none for "max".
std::optional<std::int64_t> number(const fs::path& file) {
  std::ifstream stream(file);
  std::int64_t value = 0;
  if (stream >> value) return value;
  return std::nullopt;
}

// One cgroup version: the mount point of its memory controller and its file names.
struct Cgroups {
  const char* controllers;  // as /proc/self/cgroup names the hierarchy
  const char* mount;
  const char* limit;
  const char* usage;
  const char* droppable;  // in memory.stat: file pages that the kernel drops before it kills
  const char* events;
};
constexpr Cgroups versions[] = {{"", "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", "memory.events"},
                                {"memory", "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                 "total_inactive_file", "memory.oom_control"}};

// The path of this process below a hierarchy, from lines "ID:CONTROLLERS:PATH".
std::optional<fs::path> path_below(const fs::path& root, const std::string& controllers) {
  std::ifstream stream(root / "proc/self/cgroup");
  for (std::string line; std::getline(stream, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string named = line.substr(first + 1, second - first - 1);
    const bool found =
        controllers.empty() ? named.empty() : ("," + named + ",").find("," + controllers + ",") != std::string::npos;
    if (found) return fs::path(line.substr(second + 1)).relative_path();
  }
  return std::nullopt;
}

// All levels from this process's cgroup upwards. In a container its path may not exist below the mount; then only
// existing levels count.
void apply_limits(HostResources& host, const fs::path& root, const Cgroups& version, std::int64_t total) {
  const std::optional<fs::path> below = path_below(root, version.controllers);
  if (!below) return;
  for (fs::path folder = *below;; folder = folder.parent_path()) {
    const fs::path level = root / version.mount / folder;
    host.killed = std::max(host.killed, field(level / version.events, "oom_kill").value_or(0));
    const std::optional<std::int64_t> limit = number(level / version.limit);
    if (limit && *limit < total) {  // version 1 writes a huge number for no limit
      const std::int64_t used =
          number(level / version.usage).value_or(0) - field(level / "memory.stat", version.droppable).value_or(0);
      host.container_limit = host.container_limit == 0 ? *limit : std::min(host.container_limit, *limit);
      host.memory_available =
          std::min(host.memory_available, std::max<std::int64_t>(1, *limit - std::max<std::int64_t>(0, used)));
    }
    if (folder.empty()) return;
  }
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace

HostResources host_resources(const fs::path& root) {
  constexpr std::int64_t kibi = 1024;
  HostResources host;
  host.cores = usable_cores();
  host.memory_available = field(root / "proc/meminfo", "MemAvailable:").value_or(0) * kibi;
  const std::int64_t total = field(root / "proc/meminfo", "MemTotal:").value_or(0) * kibi;
  for (const Cgroups& version : versions) apply_limits(host, root, version, total);
  return host;
}

void check_ranks(int ranks, bool oversubscribe, const HostResources& host) {
  if (oversubscribe || ranks == 1) return;
  const std::string advice = "; start fewer ranks, or allow it with --oversubscribe";
  if (ranks > most_ranks_a_core * host.cores)
    throw UserError("--nproc is {}, and this host has {}{}; at most {} ranks ({} per core) are allowed{}", ranks,
                    host.cores, host.cores == 1 ? " core" : " cores", most_ranks_a_core * host.cores, most_ranks_a_core,
                    advice);
  if (host.memory_available > 0 && host.memory_available / ranks < least_rank_bytes)
    throw UserError("--nproc is {}, and {} of memory are free{}; a rank needs {} without any part of a model{}", ranks,
                    text::format_bytes(host.memory_available),
                    host.container_limit > 0 ? " in this container" : " on this host",
                    text::format_bytes(least_rank_bytes), advice);
}

void allow_open_files(int ranks) {
  constexpr rlim_t own = 64;       // libraries, files of data and checkpoints
  constexpr rlim_t of_a_rank = 4;  // its output and its connections
  const rlim_t needed = own + of_a_rank * static_cast<rlim_t>(ranks);
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  const rlim_t allowed = limit.rlim_max;
  limit.rlim_cur = std::min(needed, allowed);
  if (limit.rlim_cur == needed && setrlimit(RLIMIT_NOFILE, &limit) == 0) return;
  throw EnvironmentError("{}{} about {} open files, but `ulimit -n` is {}; raise that limit", ranks,
                         ranks == 1 ? " rank needs" : " ranks need", needed, allowed);
}

}  // namespace strata::ranks
