// The communicators of the tree between ranks that are threads, with a store in memory: no launch.
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <strata/communicator.hpp>
#include <strata/error.hpp>
#include <strata/fakes/local_group.hpp>
#include <strata/fakes/plugin_library.hpp>

#include <atomic>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "catch.hpp"

using namespace strata;

namespace {

GroupSetup setup(int rank, int size, std::chrono::milliseconds timeout) {
  return {"data", rank, size, timeout, "127.0.0.1", rank};
}

}  // namespace

TEST_CASE("a communicator's backend does what the local group does") {
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
