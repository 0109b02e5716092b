// The communicators of the tree between ranks that are threads, with a store in memory: no launch.
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <strata/communicator.hpp>
#include <strata/error.hpp>
#include <strata/fakes/local_group.hpp>
#include <strata/fakes/plugin_library.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "catch.hpp"

using namespace strata;
using Catch::Matchers::Contains;

namespace {

GroupSetup setup(int rank, int size, std::chrono::milliseconds timeout) {
  return {"data", rank, size, timeout, "127.0.0.1", rank};
}

}  // namespace

TEST_CASE("a communicator's backend equals the local group") {
  for (const char* file : {GLOO_LIBRARY, SHM_LIBRARY}) {
    const fakes::PluginLibrary library(file);
    const auto store = c10::make_intrusive<c10d::HashStore>();
    std::atomic<int> wrong{0};
    fakes::on_ranks(3, [&](CheckedGroup& local) {
      const int rank = local.rank();
      const fakes::LoadedPlugin<Communicator> communicator(library, {}, rank);
      if (!communicator->unavailable().empty() || communicator->device_types() != std::vector<std::string>{"cpu"})
        ++wrong;
      const auto backend = communicator->connect(store, setup(rank, 3, std::chrono::seconds(30)));
      std::vector<at::Tensor> sum{at::full({1001}, 0.1 * (rank + 1))}, largest{sum[0].clone()};
      const at::Tensor expected_sum = sum[0].clone(), expected_largest = sum[0].clone();
      backend->allreduce(sum)->wait();
      c10d::AllreduceOptions options;
      options.reduceOp = c10d::ReduceOp::MAX;
      backend->allreduce(largest, options)->wait();
      local.all_reduce(expected_sum, ReduceOperation::Sum).wait();
      local.all_reduce(expected_largest, ReduceOperation::Max).wait();
      if (!at::equal(sum[0], expected_sum) || !at::equal(largest[0], expected_largest)) ++wrong;
      local.barrier();  // no rank leaves before all are done
      backend->shutdown();
    });
    INFO(file);
    CHECK(wrong == 0);
  }
}

TEST_CASE("shm: the smallest slot holds a part for each of many ranks") {
  // 66 ranks: a line of 64 bytes for each of 65 others is more than the 4 KiB that were asked for.
  constexpr int ranks = 67;
  const fakes::PluginLibrary library(SHM_LIBRARY);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::atomic<int> wrong{0};
  fakes::on_ranks(ranks, [&](CheckedGroup& local) {
    const fakes::LoadedPlugin<Communicator> communicator(library, {{"slot_size", "4KiB"}}, local.rank());
    const auto backend = communicator->connect(store, setup(local.rank(), ranks, std::chrono::seconds(60)));
    at::Tensor input = at::full({ranks * 64}, local.rank() + 1.0F), output = at::empty({64});
    for (int round = 0; round < 3; ++round) {
      backend->_reduce_scatter_base(output, input)->wait();
      if (!output.eq(ranks * (ranks + 1) / 2).all().item<bool>()) ++wrong;
    }
    local.barrier();
    backend->shutdown();
  });
  CHECK(wrong == 0);
}

TEST_CASE("shm: only a sealed memory file of this user and of the group's size is mapped") {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, boot);
  struct stat space {};
  REQUIRE(stat("/proc/self/ns/pid", &space) == 0);
  const fakes::PluginLibrary library(SHM_LIBRARY);
  const fakes::LoadedPlugin<Communicator> communicator(library, {}, 1);
  const auto error_with = [&](const std::string& path) -> std::string {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    const auto set = [&](const std::string& key, const std::string& value) {
      store->set(key, std::vector<std::uint8_t>(value.begin(), value.end()));
    };
    set("shm host", boot + " " + std::to_string(space.st_ino));
    set("shm segment", path);
    try {
      communicator->connect(store, setup(1, 2, std::chrono::milliseconds(50)));
    } catch (const EnvironmentError& error) {
      return error.what();
    }
    return "";
  };
  const auto descriptor = [](int handle) {
    return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(handle);
  };
  std::array<char, 32> path{"/tmp/strata_test_XXXXXX"};
  const int file = mkstemp(path.data());
  const int open_memory = memfd_create("test", MFD_ALLOW_SEALING);
  const int small_memory = memfd_create("test", MFD_ALLOW_SEALING);
  REQUIRE(ftruncate(file, 1 << 20) == 0);
  REQUIRE(ftruncate(small_memory, 1 << 20) == 0);
  REQUIRE(fcntl(small_memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
  CHECK_THAT(error_with(path.data()),
             Contains("is not a file descriptor of a process") && Contains("writes into the store"));
  CHECK_THAT(error_with("/proc/1/fd/2/../../../../etc/passwd"), Contains("is not a file descriptor of a process"));
  CHECK_THAT(error_with(descriptor(file)), Contains("is not a memory file whose size is sealed"));
  CHECK_THAT(error_with(descriptor(open_memory)), Contains("is not a memory file whose size is sealed"));
  CHECK_THAT(error_with(descriptor(small_memory)), Contains("has 1048576 bytes where the group needs "));
  for (const int handle : {file, open_memory, small_memory}) close(handle);
  unlink(path.data());
}
