#include "tools/ranks/host_resources.hpp"

#include "catch.hpp"
#include "temporary_folder.hpp"

using strata::ranks::host_resources;
using strata::ranks::HostResources;

TEST_CASE("a container's resources are the least of its cgroups'") {
  const TemporaryFolder folder;
  const std::string root = folder.path().string();
  folder.write("proc/meminfo", "MemTotal:       8388608 kB\nMemAvailable:   6291456 kB\n");
  CHECK(host_resources(root).memory_available == std::int64_t{6} << 30);
  CHECK(host_resources(root).container_limit == 0);
  folder.write("proc/self/cgroup", "0::/jobs/one\n");
  folder.write("sys/fs/cgroup/memory.max", "max\n");
  folder.write("sys/fs/cgroup/jobs/memory.max", "3221225472\n");
  folder.write("sys/fs/cgroup/jobs/memory.current", "2147483648\n");
  folder.write("sys/fs/cgroup/jobs/memory.stat", "anon 1\ninactive_file 1073741824\n");
  folder.write("sys/fs/cgroup/jobs/one/memory.max", "4294967296\n");
  folder.write("sys/fs/cgroup/jobs/one/memory.events", "low 0\noom_kill 3\n");
  const HostResources second = host_resources(root);
  CHECK(second.container_limit == std::int64_t{3} << 30);
  CHECK(second.memory_available == std::int64_t{2} << 30);
  CHECK(second.killed == 3);
  folder.write("proc/self/cgroup", "9:memory,cpu:/a\n");
  folder.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  folder.write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1073741824\n");
  folder.write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "536870912\n");
  CHECK(host_resources(root).container_limit == std::int64_t{1} << 30);
  CHECK(host_resources(root).memory_available == std::int64_t{512} << 20);
}
