// What every partitioner must do, on 1 to 4 ranks that are threads, against arithmetic done by hand: gathered values
// are the published ones, gradients are the sum over ranks and micro-batches, slices cover every element, nothing is
// left taken.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <strata/error.hpp>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "first.hpp"
#include "variant.hpp"

#include "catch.hpp"

using namespace strata;

namespace {

// Exact in every dtype that is summed here: small integers.
at::Tensor gradient_values(int rank, int micro_batch, std::int64_t begin, std::int64_t end) {
  return at::arange(begin, end, at::kDouble).remainder(7).add(1).mul(rank + 1).add(3.0 * micro_batch);
}

at::Tensor parameter_values(double offset, std::int64_t begin, std::int64_t end) {
  return at::arange(begin, end, at::kDouble).remainder(100).add(offset);
}

void publish_values(fakes::PartitionRank& rank, double offset) {
  for (const Slice& slice : rank.owned()) rank.parameter(slice).copy_(parameter_values(offset, slice.begin, slice.end));
  for (FlatParameter* flat : rank.flat_parameters()) rank.partitioner().publish(*flat);
}

void check_values(fakes::PartitionRank& rank, int number, FlatParameter& flat, int step, double offset, Phase phase,
                  First& first) {
  Partitioner& partitioner = rank.partitioner();
  const bool resident = partitioner.lookahead().resident;
  if (!resident) partitioner.gather(flat, phase);
  const at::Tensor expected = parameter_values(offset, 0, flat.elements()).to(flat.info().dtypes.parameter);
  first.expect(flat.parameters()[0].detach(), expected, number, step, "values of " + flat.info().name);
  if (!resident) partitioner.release(flat, phase);
}

void check_gradients(fakes::PartitionRank& rank, int number, int ranks, int step, int micro_batches, First& first) {
  for (const Slice& slice : rank.owned()) {
    if (!slice.flat->info().trainable) continue;
    at::Tensor expected = at::zeros({slice.end - slice.begin}, at::TensorOptions().dtype(at::kDouble));
    for (int other = 0; other < ranks; ++other)
      for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch)
        expected.add_(gradient_values(other, micro_batch, slice.begin, slice.end));
    first.expect(rank.gradient(slice), expected, number, step, "gradient of " + slice.flat->info().name, slice.begin);
  }
}

struct Counts {
  First first;
  std::atomic<int> wrong_slices{0};
  std::atomic<int> left_taken{0};
  std::mutex mutex;
  std::map<int, std::vector<int>> counted;  // flat parameter -> times each element was counted
};

void count_slices(fakes::PartitionRank& rank, Counts& counts) {
  const std::lock_guard<std::mutex> lock(counts.mutex);
  for (const Slice& slice : rank.owned()) {
    std::vector<int>& times = counts.counted[slice.flat->info().id];
    times.resize(static_cast<std::size_t>(slice.flat->elements()));
    const FlatParameterInfo& info = slice.flat->info();
    if (slice.counted_begin < slice.begin || slice.counted_end > slice.end || slice.begin >= slice.end ||
        info.cut_up_to(slice.begin) != slice.begin || info.cut_up_to(slice.end) != slice.end)
      ++counts.wrong_slices;
    for (std::int64_t i = slice.counted_begin; i < slice.counted_end; ++i) ++times[static_cast<std::size_t>(i)];
  }
}

// With `units`, what is tied is never cut, and the largest in four only.
std::vector<FlatParameterInfo> flat_parameters(const DTypes& dtypes, bool units) {
  std::vector<FlatParameterInfo> infos = fakes::odd_flat_parameters(dtypes);
  if (!units) return infos;
  infos[1].parameters[0].unit = 2;
  infos[2].parameters[0].unit = 37;
  infos[3].parameters[0].unit = 256;
  return infos;
}

void train(const Variant& variant, int ranks, const DTypes& dtypes, bool units, Counts& counts) {
  const fakes::PluginLibrary& library = library_of(variant);
  const fakes::PartitionGroups groups(library, variant.options, ranks);
  fakes::on_ranks(ranks, [&](CheckedGroup& world) {
    fakes::PartitionRank rank(library, variant.options, groups, world.rank(), flat_parameters(dtypes, units));
    for (int step = 0; step < 3; ++step) {
      const double offset = 10.0 * step;
      publish_values(rank, offset);
      for (const Phase phase : {Phase::Forward, Phase::Backward})
        for (FlatParameter* flat : rank.flat_parameters())
          check_values(rank, world.rank(), *flat, step, offset, phase, counts.first);
      const int micro_batches = step + 1;
      fakes::run_step(rank, micro_batches, [&](FlatParameter& flat, const at::Tensor& buffer, int micro_batch) {
        buffer.add_(gradient_values(world.rank(), micro_batch, 0, flat.elements()).to(buffer.scalar_type()));
      });
      check_gradients(rank, world.rank(), ranks, step, micro_batches, counts.first);
      counts.left_taken += rank.slots().taken();
    }
    count_slices(rank, counts);
  });
}

// Each option by itself, and what meets inside: pieces with rounding, scaling with pieces and with replicas.
std::vector<Variant> variants(int ranks) {
  std::vector<Variant> list{{"ddp", {}}, {"zero1", {}}, {"zero2", {}}, {"zero3", {}}};
  for (const char* plugin : {"zero1", "zero2", "zero3"}) {
    list.push_back({plugin, {{"reduce_bucket_size", "100"}}});
    list.push_back({plugin, {{"overlap_comm", "false"}}});
    list.push_back({plugin, {{"prescale_gradients", "false"}, {"reduce_bucket_size", "1"}}});
    list.push_back(
        {plugin, {{"prescale_gradients", "false"}, {"gradient_predivide_factor", "0.125"}, {"overlap_comm", "false"}}});
  }
  for (const char* plugin : {"zero1", "zero2"}) {
    list.push_back({plugin, {{"reduce_scatter", "false"}, {"prescale_gradients", "false"}}});
    list.push_back({plugin, {{"reduce_scatter", "false"}, {"allgather_bucket_size", "64"}}});
  }
  for (const char* plugin : {"zero2", "zero3"})
    list.push_back({plugin, {{"gradient_reduction", "last_micro_batch"}, {"reduce_bucket_size", "80"}}});
  list.push_back({"zero3", {{"persistence_threshold", "40"}}});
  list.push_back({"zero3", {{"persistence_threshold", "40"}, {"model_persistence_threshold", "12"}}});
  for (int size = 1; size <= ranks; ++size) {
    if (ranks % size != 0) continue;
    const std::string shard = std::to_string(size);
    for (const char* stage : {"1", "2", "3"}) {
      list.push_back({"hybrid", {{"shard_size", shard}, {"stage", stage}}});
      list.push_back({"hybrid",
                      {{"shard_size", shard},
                       {"stage", stage},
                       {"prescale_gradients", "false"},
                       {"reduce_bucket_size", "200"},
                       {"gradient_reduction", "last_micro_batch"}}});
    }
    list.push_back({"hybrid", {{"shard_size", shard}, {"secondary_shard", "true"}}});
    list.push_back({"hybrid", {{"shard_size", shard}, {"secondary_shard", "true"}, {"reduce_bucket_size", "100"}}});
  }
  return list;
}

}  // namespace

TEST_CASE("values, gradients and slices of every partitioner") {
  const DTypes mixed{at::kBFloat16, at::kFloat, at::kFloat, at::kFloat};
  DTypes narrow_sums = mixed;
  narrow_sums.reduction = at::kBFloat16;  // sums here stay below 256: exact in bf16
  const bool units = GENERATE(false, true);
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const Variant& variant : variants(ranks)) {
      for (const DTypes& dtypes : {DTypes{}, mixed, narrow_sums}) {
        CAPTURE(describe(variant), ranks, units, dtypes.parameter, dtypes.reduction);
        Counts counts;
        train(variant, ranks, dtypes, units, counts);
        CHECK(counts.first.text() == "");
        CHECK(counts.wrong_slices == 0);
        CHECK(counts.left_taken == 0);
        REQUIRE(counts.counted.size() == 5);
        for (const auto& [id, times] : counts.counted)
          CHECK(std::all_of(times.begin(), times.end(), [](int count) { return count == 1; }));
      }
    }
  }
}

TEST_CASE("calls in a wrong order throw") {
  for (const Variant& variant : variants(2)) {
    CAPTURE(describe(variant));
    std::atomic<int> failures{0};
    const fakes::PluginLibrary& library = library_of(variant);
    const fakes::PartitionGroups groups(library, variant.options, 2);
    const auto throws = [&](auto&& call) {
      try {
        call();
        ++failures;
      } catch (const Bug&) {
      }
    };
    fakes::on_ranks(2, [&](CheckedGroup& world) {
      fakes::PartitionRank rank(library, variant.options, groups, world.rank(), fakes::odd_flat_parameters());
      Partitioner& partitioner = rank.partitioner();
      FlatParameter& flat = *rank.flat_parameters()[3];
      throws([&] { partitioner.reduce(flat, {true, true}); });
      partitioner.gradient(flat, {true, true});
      throws([&] { partitioner.gradient(flat, {true, true}); });
      partitioner.reduce(flat, {true, true});
      throws([&] { partitioner.reduce(flat, {true, true}); });
      partitioner.finish_gradient(flat);
      if (flat.residence() != Residence::Released) return;  // one whose parameters stay
      partitioner.gather(flat, Phase::Forward);
      partitioner.gather(flat, Phase::Forward);  // is there already
      throws([&] { partitioner.publish(flat); });
      partitioner.release(flat, Phase::Forward);
      if (flat.residence() != Residence::Released) ++failures;
      throws([&] { partitioner.release(flat, Phase::Forward); });
    });
    CHECK(failures == 0);
  }
}

TEST_CASE("unfinished transfers are waited for and held memory is returned at the end") {
  for (const Variant& variant : variants(2)) {
    CAPTURE(describe(variant));
    std::atomic<int> left_taken{0}, left_under_way{0};
    const fakes::PluginLibrary& library = library_of(variant);
    const fakes::PartitionGroups groups(library, variant.options, 2);
    fakes::on_ranks(2, [&](CheckedGroup& world) {
      fakes::PartitionRank rank(library, variant.options, groups, world.rank(), fakes::odd_flat_parameters());
      publish_values(rank, 1.0);
      FlatParameter& flat = *rank.flat_parameters()[3];
      rank.partitioner().prefetch(flat, Phase::Forward);
      rank.partitioner().gradient(flat, {true, true});
      rank.partitioner().reduce(flat, {true, true});
      rank.partitioner().gradient(*rank.flat_parameters()[2], {true, true});
      rank.shutdown();
      left_taken += rank.slots().taken();
      left_under_way += groups.under_way(world.rank());
    });
    CHECK(left_taken == 0);
    CHECK(left_under_way == 0);
  }
}

TEST_CASE("published values are waited for at once without overlap, else before use") {
  for (const std::string plugin : {"zero1", "zero2", "hybrid"})
    for (const bool overlaps : {false, true}) {
      Variant variant{plugin, {{"overlap_comm", overlaps ? "true" : "false"}}};
      if (plugin == "hybrid") variant.options.insert(variant.options.end(), {{"shard_size", "2"}, {"stage", "1"}});
      std::atomic<int> under_way{0};
      const fakes::PluginLibrary& library = library_of(variant);
      const fakes::PartitionGroups groups(library, variant.options, 2, fakes::Movement::AtWait);
      fakes::on_ranks(2, [&](CheckedGroup& world) {
        fakes::PartitionRank rank(library, variant.options, groups, world.rank(), fakes::odd_flat_parameters());
        publish_values(rank, 1.0);
        under_way += groups.under_way(world.rank());
        rank.shutdown();
      });
      CAPTURE(describe(variant));
      CHECK((under_way > 0) == overlaps);
    }
}
