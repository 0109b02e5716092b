// A partitioner's surroundings without an engine. That they carry all partitioners of the tree is tested in
// ../partitioner.
#include <strata/error.hpp>
#include <strata/fakes/partition_ranks.hpp>

#include <atomic>

#include "catch.hpp"

using namespace strata;

namespace {

const fakes::PluginLibrary& library(const std::string& name) {
  static const fakes::PluginLibrary ddp(std::string(PLUGIN_FOLDER) + "/libstrata_partitioner_ddp.so"),
      hybrid(std::string(PLUGIN_FOLDER) + "/libstrata_partitioner_hybrid.so");
  return name == "ddp" ? ddp : hybrid;
}

}  // namespace

TEST_CASE("the odd flat parameters cover the edge cases of partitioners") {
  const std::vector<FlatParameterInfo> infos = fakes::odd_flat_parameters();
  bool one = false, fewer = false, frozen = false, shared = false;
  for (std::size_t i = 0; i < infos.size(); ++i) {
    CHECK(infos[i].id == static_cast<int>(i));
    CHECK(infos[i].parameters.at(0).info.elements() == infos[i].elements);
    one = one || infos[i].elements == 1;
    fewer = fewer || infos[i].elements == 2;
    frozen = frozen || !infos[i].trainable;
    shared = shared || infos[i].layers.size() > 1;
  }
  CHECK((one && fewer && frozen && shared));
}

TEST_CASE("each rank gets the groups of the places that the partitioner asked for") {
  const fakes::OptionTexts options{{"shard_size", "2"}};
  const fakes::PartitionGroups groups(library("hybrid"), options, 4);
  CHECK(groups.ranks() == 4);
  CHECK(groups.of("shard", 3).size() == 2);
  CHECK(groups.of("shard", 3).rank() == 1);
  CHECK(groups.of("replicate", 3).rank() == 1);
  CHECK_THROWS_WITH(groups.of("data", 0), Catch::Contains("'data', which groups() did not ask for"));
  fakes::PartitionRank absent(library("hybrid"), options, 4, 3, {fakes::flat_parameter_info(0, 64)});
  CHECK(absent.group("replicate").members() == std::vector<int>{1, 3});
  CHECK_THROWS_AS(absent.group("data"), Bug);
}

TEST_CASE("a step fills each trainable buffer once a micro-batch") {
  const fakes::PartitionGroups groups(library("ddp"), {}, 2);
  std::atomic<int> fills{0}, frozen{0};
  fakes::on_ranks(2, [&](CheckedGroup& world) {
    fakes::PartitionRank rank(library("ddp"), {}, groups, world.rank(), fakes::odd_flat_parameters());
    fakes::run_step(rank, 3, [&](FlatParameter& flat, const at::Tensor& buffer, int) {
      ++fills;
      frozen += flat.info().trainable && buffer.numel() == flat.elements() ? 0 : 1;
    });
  });
  CHECK(fills == 2 * 3 * 4);
  CHECK(frozen == 0);
}

TEST_CASE("a rank of many that are not there counts bytes and holds no memory") {
  fakes::PartitionRank rank(library("ddp"), {}, 1024, 1023, {fakes::flat_parameter_info(0, 1'000'000'000)});
  CHECK(rank.store().dry_run());
  fakes::run_step(rank, 2, [](FlatParameter&, const at::Tensor&, int) {});
  CHECK(rank.traffic().total_bytes() == logical_bytes(Collective::AllReduce, 4'000'000'000, 1024));
  CHECK(rank.store().ledger().total(Tier::Device) == 8'000'000'000);
  CHECK(rank.owned().at(0).counted_end == 1'000'000'000);
}
