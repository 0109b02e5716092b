// @name@ on ranks that are threads of this process: no engine, no launch.
#include <strata/fakes/partition_ranks.hpp>

#include <atomic>

#include "catch.hpp"

using namespace strata;

TEST_CASE("a gradient is the sum over ranks and micro-batches") {
  const fakes::PluginLibrary library(PLUGIN_FILE);
  for (const int ranks : {1, 2, 3}) {
    const fakes::PartitionGroups groups(library, {}, ranks);
    std::atomic<int> wrong{0};  // Catch2's own macros are for one thread
    fakes::on_ranks(ranks, [&](CheckedGroup& world) {
      fakes::PartitionRank rank(library, {}, groups, world.rank(), fakes::odd_flat_parameters());
      fakes::run_step(rank, 2, [&](FlatParameter&, const at::Tensor& buffer, int micro_batch) {
        buffer.add_(world.rank() + 1 + 10 * micro_batch);
      });
      const int expected = ranks * (ranks + 1) + 10 * ranks;
      for (const Slice& slice : rank.owned())
        if (slice.flat->info().trainable && !rank.gradient(slice).eq(expected).all().item<bool>()) ++wrong;
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("what a rank of 8 holds and sends, without the other 7") {
  const fakes::PluginLibrary library(PLUGIN_FILE);
  fakes::PartitionRank rank(library, {}, 8, 0, {fakes::flat_parameter_info(0, 1000)});
  fakes::run_step(rank, 1, [](FlatParameter&, const at::Tensor&, int) {});
  CHECK(rank.store().ledger().total(Tier::Device) == 2 * 4000);  // parameters and gradients in fp32
  CHECK(rank.traffic().total_bytes() == logical_bytes(Collective::AllReduce, 4000, 8));
}
