// @name@ between ranks that are threads of this process, with a store in memory.
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

TEST_CASE("ranks sum, and what one sends the other receives") {
  const fakes::PluginLibrary library(PLUGIN_FILE);
  for (const int size : {1, 2, 3}) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    std::atomic<int> wrong{0};  // Catch2's own macros are for one thread
    fakes::on_ranks(size, [&](CheckedGroup& world) {
      const int rank = world.rank(), next = (rank + 1) % size, last = (rank + size - 1) % size;
      const fakes::LoadedPlugin<Communicator> communicator(library);
      const auto backend = communicator->connect(store, setup(rank, size, std::chrono::seconds(30)));
      std::vector<at::Tensor> sum{at::full({5}, rank + 1.0)}, sent{at::full({1}, rank)}, received{at::full({1}, -1)};
      backend->allreduce(sum)->wait();
      if (!sum[0].eq(size * (size + 1) / 2).all().item<bool>()) ++wrong;
      if (size > 1) {
        const auto sending = backend->send(sent, next, 0), receiving = backend->recv(received, last, 0);
        sending->wait();
        receiving->wait();
        if (received[0].item<double>() != last) ++wrong;
      }
      world.barrier();  // no rank leaves before all have finished
      backend->shutdown();
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("a rank that does not come ends the wait for it within the timeout") {
  const fakes::PluginLibrary library(PLUGIN_FILE);
  const fakes::LoadedPlugin<Communicator> communicator(library);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  CHECK_THROWS_AS(communicator->connect(store, setup(0, 2, std::chrono::milliseconds(50))), EnvironmentError);
}
