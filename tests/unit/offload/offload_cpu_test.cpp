#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <unistd.h>
#include <strata/error.hpp>
#include <strata/fakes/plugin_library.hpp>
#include <strata/offload_device.hpp>
#include <strata/run_context.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "host_memory.hpp"
#include "temporary_folder.hpp"

namespace {

using strata::Region;
using strata::Span;
using Device = strata::fakes::LoadedPlugin<strata::OffloadDevice>;

Device device() {
  return Device(strata::fakes::PluginLibrary(OFFLOAD_CPU_LIBRARY));
}

std::vector<std::uint8_t> pattern(std::size_t bytes) {
  std::vector<std::uint8_t> data(bytes);
  std::iota(data.begin(), data.end(), std::uint8_t{1});
  return data;
}

}  // namespace

TEST_CASE("ranks of a host take its memory one after another") {
  const int other_rank = open("/dev/shm", O_RDONLY | O_DIRECTORY);
  REQUIRE(flock(other_rank, LOCK_EX) == 0);  // between its look and its taking
  std::atomic<bool> taken{false};
  std::thread rank([&taken] {
    const strata::offload_cpu::HostRegion region(4096);
    taken = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK_FALSE(taken);
  close(other_rank);
  rank.join();
  CHECK(taken);
}

TEST_CASE("a rank's node is the one that has all processors it may run on") {
  using strata::offload_cpu::own_node;
  cpu_set_t before, one;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  int processor = 0;
  while (!CPU_ISSET(processor, &before)) ++processor;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  const std::string here = std::to_string(processor), next = std::to_string(processor + 1),
                    later = std::to_string(processor + 1) + "-" + std::to_string(processor + 9);
  const TemporaryFolder root;
  const std::string path = root.path().string();
  const auto nodes = [&](const std::string& first, const std::string& second) {
    root.write("sys/devices/system/node/node0/cpulist", first + "\n");
    root.write("sys/devices/system/node/node3/cpulist", second + "\n");
    return own_node(path);
  };
  CHECK_FALSE(own_node(path).has_value());  // a kernel that does not say
  root.write("sys/devices/system/node/node0/cpulist", here + "\n");
  root.write("sys/devices/system/node/online", "0\n");
  CHECK_FALSE(own_node(path).has_value());
  CHECK(nodes(next + ",600", later) == std::nullopt);
  CHECK(nodes(later, here + "," + later) == 3);
  CHECK(nodes("", here) == 3);
  CHECK(nodes(here, later) == 0);
  CHECK(nodes(here, "0-2000") == std::nullopt);
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
}

TEST_CASE("a region's pages are requested from the node, and a refusal is reported") {
  const auto line_of = [](const void* memory) {
    std::ostringstream begin;
    begin << std::hex << reinterpret_cast<std::uintptr_t>(memory);
    std::ifstream maps("/proc/self/numa_maps");
    std::string line;
    while (std::getline(maps, line) && !line.starts_with(begin.str())) {
    }
    return line;
  };
  const strata::offload_cpu::HostRegion plain(1 << 20, std::nullopt), placed(1 << 20, 0), nowhere(1 << 20, 1000);
  CHECK(plain.node_refused().empty());
  CHECK_THAT(nowhere.node_refused(), Catch::Contains("errno"));
  if (!std::filesystem::exists("/proc/self/numa_maps")) {
    WARN("SKIPPED: this kernel has no /proc/self/numa_maps");
    return;
  }
  CHECK(placed.node_refused().empty());
  CHECK_THAT(line_of(placed.data()), Catch::Contains("prefer:0"));
  CHECK_THAT(line_of(plain.data()), !Catch::Contains("prefer"));
}

// What is locked, and whether the system lets it be.
struct LockingDevice {
  class Counting final : public strata::Device {
   public:
    explicit Counting(LockingDevice& noted) : noted_(noted) {}
    std::string type() const override { return "cpu"; }
    int count() const override { return 1; }
    std::string why() const override { return ""; }
    at::Device select(int) override { return at::kCPU; }
    void on(strata::StreamKind, const std::function<void()>& work) override { work(); }
    std::unique_ptr<strata::Event> make_event() override { return nullptr; }
    void synchronize() override {}
    strata::DeviceMemory memory() const override { return {}; }
    at::Tensor host_buffer(std::int64_t) override { return {}; }
    bool page_lock(Span memory) override {
      if (noted_.allows) noted_.locked[memory.data] = memory.bytes;
      return noted_.allows;
    }
    void page_unlock(Span memory) override { CHECK(noted_.locked.erase(memory.data) == 1); }

   private:
    LockingDevice& noted_;
  };
  class Run final : public strata::RunContext {
   public:
    explicit Run(strata::Device& device) : device_(device) {}
    strata::Device& device() override { return device_; }
    strata::StateStore& store() override { throw strata::Bug("not asked for"); }
    strata::SlotPool& slots() override { throw strata::Bug("not asked for"); }

   private:
    strata::Device& device_;
  };

  bool allows = true;
  std::map<void*, std::size_t> locked;
  Counting device{*this};
  Run run{device};
};

TEST_CASE("a run's device locks the regions' memory until they are freed") {
  LockingDevice locking;
  const Device cpu = device();
  const Region early = cpu->reserve(100);  // no run has begun
  cpu->run_begins(locking.run);
  const Region region = cpu->reserve(8192);
  CHECK(locking.locked == std::map<void*, std::size_t>{{cpu->map(region)->data, 8192}});
  locking.allows = false;
  const Region refused = cpu->reserve(4096);
  CHECK(locking.locked.size() == 1);
  for (const Region& one : {early, region, refused}) cpu->free(one);
  CHECK(locking.locked.empty());
}

TEST_CASE("bytes come back as they were written, at any offset and size") {
  const Device cpu = device();
  CHECK(cpu->tier() == strata::Tier::Host);
  const Region region = cpu->reserve(10001);
  CHECK(region.id != 0);
  CHECK(region.bytes == 10001);
  for (const auto& [at, bytes] :
       std::vector<std::pair<std::size_t, std::size_t>>{{0, 10001}, {1, 1}, {4097, 5000}, {10001, 0}}) {
    std::vector<std::uint8_t> source = pattern(bytes), target(bytes);
    cpu->write(region, at, {source.data(), bytes})->wait();
    cpu->read(region, at, {target.data(), bytes})->wait();
    CHECK(source == target);
  }
  cpu->free(region);
}

TEST_CASE("a region begins at a page, is zero, and is the memory that transfers see") {
  const Device cpu = device();
  const Region region = cpu->reserve(5000), other = cpu->reserve(1);
  CHECK(other.id != region.id);
  const Span span = cpu->map(region).value();
  CHECK(span.bytes == 5000);
  CHECK(reinterpret_cast<std::uintptr_t>(span.data) % 4096 == 0);
  auto* bytes = static_cast<std::uint8_t*>(span.data);
  CHECK(std::all_of(bytes, bytes + span.bytes, [](std::uint8_t b) { return b == 0; }));
  bytes[4999] = 42;
  std::uint8_t seen = 0;
  cpu->read(region, 4999, {&seen, 1})->wait();
  CHECK(seen == 42);
}

TEST_CASE("wrong regions and ranges are bugs, not memory errors") {
  const Device cpu = device();
  const Region region = cpu->reserve(100);
  std::uint8_t byte = 0;
  CHECK_THROWS_AS(cpu->write(region, 100, {&byte, 1}), strata::Bug);
  CHECK_THROWS_AS(cpu->read(region, SIZE_MAX, {&byte, 1}), strata::Bug);
  CHECK_THROWS_AS(cpu->map({99, 1}), strata::Bug);
  CHECK_THROWS_AS(cpu->reserve(0), strata::Bug);
  cpu->free(region);
  CHECK_THROWS_AS(cpu->free(region), strata::Bug);
  CHECK_THROWS_AS(cpu->map(region), strata::Bug);
}

TEST_CASE("more than there is is refused with both figures, before anything is taken") {
  const Device cpu = device();
  const std::size_t available = strata::offload_cpu::available_memory();
  CHECK(available > 0);
  CHECK_THROWS_WITH(cpu->reserve(available * 4),
                    Catch::Contains(std::to_string(available * 4) + " bytes") && Catch::Contains("available"));
  CHECK_THROWS_AS(cpu->reserve(SIZE_MAX / 2), strata::EnvironmentError);
}

TEST_CASE("available memory is the kernel's figure or the control group's, whichever is less") {
  using strata::offload_cpu::available_memory;
  const TemporaryFolder root;  // with a /proc and a /sys of its own
  const std::string path = root.path().string();
  CHECK_THROWS_WITH(available_memory(path), Catch::Contains("MemAvailable"));
  root.write("proc/meminfo", "");
  CHECK_THROWS_AS(available_memory(path), strata::EnvironmentError);
  root.write("proc/meminfo", "MemTotal:  2000 kB\nMemAvailable:   1000 kB\n");
  CHECK(available_memory(path) == 1024000);
  root.write("proc/self/cgroup", "0::/outer/inner\n");
  root.write("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  root.write("sys/fs/cgroup/outer/inner/memory.current", "700000\n");
  CHECK(available_memory(path) == 1024000);
  root.write("sys/fs/cgroup/outer/memory.max", "900000\n");
  root.write("sys/fs/cgroup/outer/memory.current", "800000\n");
  root.write("sys/fs/cgroup/outer/memory.stat", "anon 500000\ninactive_file 100000\nactive_file 50000\n");
  CHECK(available_memory(path) == 250000);
  root.write("sys/fs/cgroup/memory.max", "100\n");
  root.write("sys/fs/cgroup/memory.current", "5000\n");
  CHECK(available_memory(path) == 0);
}
