#include "host_memory.hpp"

#include "catch.hpp"
#include "temporary_folder.hpp"

using strata::DeviceMemory;
using strata::cpu_device::host_memory;

namespace {
constexpr std::int64_t gibi = 1 << 30;

// A root folder with the kernel's files as a test wants them.
struct Root : TemporaryFolder {
  Root() { write("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:  1 kB\nMemAvailable:   8388608 kB\n"); }
  DeviceMemory memory() const { return host_memory(path()); }
};
}  // namespace

TEST_CASE("host memory without a cgroup is the kernel's") {
  const Root root;
  CHECK(root.memory().total == 16 * gibi);
  CHECK(root.memory().available == 8 * gibi);
}

TEST_CASE("a cgroup's limit counts, at any level, without reclaimable memory") {
  const Root root;
  root.write("proc/self/cgroup", "0::/jobs/42\n");
  root.write("sys/fs/cgroup/jobs/42/memory.max", "max\n");
  root.write("sys/fs/cgroup/jobs/42/memory.current", "1000\n");
  CHECK(root.memory().total == 16 * gibi);
  root.write("sys/fs/cgroup/jobs/memory.max", std::to_string(4 * gibi));
  root.write("sys/fs/cgroup/jobs/memory.current", std::to_string(3 * gibi));
  root.write("sys/fs/cgroup/jobs/memory.stat", "anon 5\ninactive_file " + std::to_string(1 * gibi) + "\n");
  CHECK(root.memory().total == 4 * gibi);
  CHECK(root.memory().available == 2 * gibi);
  root.write("sys/fs/cgroup/jobs/memory.current", std::to_string(9 * gibi));
  CHECK(root.memory().available == 0);
}

TEST_CASE("version 1, and a container that sees its own cgroup as the root") {
  const Root root;
  root.write("proc/self/cgroup", "5:cpu,memory:/docker/abc\n0::/docker/abc\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(2 * gibi));
  root.write("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(1 * gibi));
  CHECK(root.memory().total == 2 * gibi);
  CHECK(root.memory().available == 1 * gibi);
}

TEST_CASE("damaged files count as absent") {
  const Root root;
  root.write("proc/self/cgroup", "nonsense\n::\n0::\n\n0:/x\n");
  root.write("sys/fs/cgroup/memory.max", "");
  CHECK(root.memory().total == 16 * gibi);
  root.write("proc/meminfo", "");
  CHECK(root.memory().total == 0);
}
