// sparse_gradients: the sum of an embedding's touched rows against the dense sum, bit for bit; the bytes that travel,
// in a dry run too; what is refused.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <strata/error.hpp>

#include <algorithm>
#include <mutex>
#include <set>

#include "error_of.hpp"
#include "variant.hpp"

#include "catch.hpp"

using namespace strata;

namespace {

constexpr std::int64_t vocabulary = 101, width = 6, positions = 7;
constexpr std::int64_t elements = (vocabulary + positions) * width + 5;

ParameterSpan span(const std::string& name, std::vector<std::int64_t> shape, std::int64_t offset) {
  ParameterSpan made;
  made.info.name = name;
  made.info.shape = std::move(shape);
  made.offset = offset;
  return made;
}

// An embedding, positions and a bias in the first layer, whose elements no width divides; a layer of linears.
std::vector<FlatParameterInfo> parameters(const DTypes& dtypes = {}) {
  std::vector<FlatParameterInfo> infos{fakes::flat_parameter_info(0, elements, dtypes),
                                       fakes::flat_parameter_info(1, 60, dtypes)};
  infos[0].parameters = {span("embedding", {vocabulary, width}, 0),
                         span("positions", {positions, width}, vocabulary * width),
                         span("bias", {5}, (vocabulary + positions) * width)};
  return infos;
}

enum class Touched { None, Few, All };

std::set<std::int64_t> rows_of(Touched touched, int rank, int micro_batch) {
  std::set<std::int64_t> rows;
  if (touched == Touched::Few) rows = {3, 17 + rank, 40 + 2 * micro_batch, 100};
  if (touched == Touched::All)
    for (std::int64_t row = 0; row < vocabulary + positions; ++row) rows.insert(row);
  return rows;
}

// What a micro-batch adds to the gradient: rows of the embedding, and where any is touched two positions and the bias.
void add_gradient(const at::Tensor& buffer, const FlatParameter& flat, Touched touched, int rank, int micro_batch) {
  const at::Tensor values = at::arange(flat.elements(), at::kDouble)
                                .mul(1.3)
                                .add(0.7 * rank + 1.9 * micro_batch)
                                .sin()
                                .to(buffer.scalar_type());
  if (flat.info().id != 0) {
    buffer.add_(values);
    return;
  }
  std::set<std::int64_t> rows = rows_of(touched, rank, micro_batch);
  if (touched != Touched::None) rows.insert({vocabulary, vocabulary + 2});
  for (const std::int64_t row : rows) buffer.narrow(0, row * width, width).add_(values.narrow(0, row * width, width));
  if (touched == Touched::None) return;
  buffer.narrow(0, elements - 5, 5).add_(values.narrow(0, elements - 5, 5));
  if (rank == 0) buffer[50 * width + 1] = -0.0;  // of which the sum is +0
}

struct Result {
  std::vector<std::vector<at::Tensor>> gradients;  // by rank and slice
  Traffic traffic;                                 // of rank 0
  Ledger ledger;
};

Result run(const Variant& variant, const std::string& sparse, int ranks, const DTypes& dtypes, Touched touched,
           int micro_batches) {
  fakes::OptionTexts options = variant.options;
  options.emplace_back("sparse_gradients", sparse);
  Result result;
  result.gradients.resize(static_cast<std::size_t>(ranks));
  const fakes::PartitionGroups groups(library_of(variant), options, ranks, fakes::Movement::AtWait);
  std::mutex mutex;
  fakes::on_ranks(ranks, [&](CheckedGroup& everyone) {
    fakes::PartitionRank rank(library_of(variant), options, groups, everyone.rank(), parameters(dtypes));
    for (int step = 0; step < 2; ++step)
      fakes::run_step(rank, micro_batches, [&](FlatParameter& flat, const at::Tensor& buffer, int micro_batch) {
        add_gradient(buffer, flat, touched, everyone.rank(), micro_batch + step);
      });
    const std::lock_guard<std::mutex> lock(mutex);
    for (const Slice& slice : rank.owned())
      result.gradients[static_cast<std::size_t>(everyone.rank())].push_back(rank.gradient(slice).clone());
    if (everyone.rank() == 0) {
      result.traffic = rank.traffic();
      result.ledger = rank.store().ledger();
    }
    CHECK(rank.slots().taken() == 0);
  });
  return result;
}

// -0 is not +0 here.
bool same_bits(const at::Tensor& one, const at::Tensor& other) {
  const at::ScalarType integer = one.element_size() == 2 ? at::kShort : at::kInt;
  return at::equal(one.view(integer), other.view(integer));
}

}  // namespace

TEST_CASE("the sum of touched rows is the dense sum bit for bit") {
  const DTypes fp32, bf16_sums{at::kBFloat16, at::kFloat, at::kBFloat16, at::kFloat},
      bf16{at::kBFloat16, at::kBFloat16, at::kBFloat16, at::kFloat};
  const std::vector<Variant> variants{{"ddp", {}},
                                      {"zero1", {}},
                                      {"zero1", {{"reduce_scatter", "false"}, {"overlap_comm", "false"}}},
                                      {"zero1", {{"prescale_gradients", "false"}, {"reduce_bucket_size", "200"}}},
                                      {"zero2", {}},
                                      {"zero2", {{"gradient_reduction", "last_micro_batch"}}},
                                      {"zero2", {{"prescale_gradients", "false"}}}};
  for (const Variant& variant : variants)
    for (const int ranks : {1, 2, 3})
      for (const DTypes& dtypes : {fp32, bf16_sums, bf16})
        for (const Touched touched : {Touched::None, Touched::Few, Touched::All})
          for (const int micro_batches : {1, 3}) {
            CAPTURE(describe(variant), ranks, static_cast<int>(touched), micro_batches,
                    c10::toString(dtypes.reduction));
            const Result dense = run(variant, "false", ranks, dtypes, touched, micro_batches);
            const Result rows = run(variant, "true", ranks, dtypes, touched, micro_batches);
            for (std::size_t rank = 0; rank < dense.gradients.size(); ++rank)
              for (std::size_t slice = 0; slice < dense.gradients[rank].size(); ++slice)
                CHECK(same_bits(rows.gradients[rank][slice], dense.gradients[rank][slice]));
          }
}

TEST_CASE("a step sends a bit per row, then the touched rows or the dense sum") {
  constexpr int ranks = 3, steps = 2;
  const std::int64_t blocks = vocabulary + positions;  // of width elements; 5 elements are the rest
  const std::int64_t bits = logical_bytes(Collective::AllGather, ranks * ((blocks + 7) / 8), ranks);
  for (const Touched touched : {Touched::None, Touched::Few, Touched::All}) {
    CAPTURE(static_cast<int>(touched));
    std::set<std::int64_t> rows;
    for (int rank = 0; rank < ranks; ++rank) rows.merge(rows_of(touched, rank, 0));
    const auto touched_rows = static_cast<std::int64_t>(rows.size()) + (touched == Touched::None ? 0 : 3);
    const Variant ddp{"ddp", {}};
    const Traffic dense = run(ddp, "false", ranks, {}, touched, 1).traffic;
    const Traffic sparse = run(ddp, "true", ranks, {}, touched, 1).traffic;
    CHECK(sparse.bytes_of(Collective::AllGather) == steps * bits);
    if (touched == Touched::All) {
      CHECK(sparse.bytes_of(Collective::AllReduce) == dense.bytes_of(Collective::AllReduce));
      continue;
    }
    // Each step touches as many, the second others.
    const std::int64_t less = logical_bytes(Collective::AllReduce, 4 * elements, ranks) -
                              logical_bytes(Collective::AllReduce, 4 * (touched_rows * width + 5), ranks);
    CHECK(dense.bytes_of(Collective::AllReduce) - sparse.bytes_of(Collective::AllReduce) == steps * less);
  }
  for (const char* const plugin : {"ddp", "zero1", "zero2"}) {
    CAPTURE(plugin);
    const Variant variant{plugin, {}};
    const auto planned = [&](const std::string& sparse) {
      Result result;
      fakes::PartitionRank rank(library_of(variant), {{"sparse_gradients", sparse}}, ranks, 0, parameters());
      fakes::run_step(rank, 1, [](FlatParameter&, const at::Tensor&, int) {});
      result.traffic = rank.traffic();
      result.ledger = rank.store().ledger();
      return result;
    };
    const Result rows = planned("true");
    CHECK(rows.traffic.total_bytes() == planned("false").traffic.total_bytes() + bits);
    for (const Touched touched : {Touched::None, Touched::Few, Touched::All}) {
      const Result real = run(variant, "true", ranks, {}, touched, 1);
      CHECK(real.traffic.total_bytes() <= steps * rows.traffic.total_bytes());
      CHECK(real.ledger.peak == rows.ledger.peak);
    }
  }
}

TEST_CASE("pieces of an embedding in flight together take the memory of the plan") {
  const std::vector<Variant> variants{{"zero1", {{"reduce_bucket_size", "200"}}},
                                      {"zero1", {{"reduce_bucket_size", "200"}, {"overlap_comm", "false"}}},
                                      {"zero2", {{"reduce_bucket_size", "200"}}},
                                      {"zero2", {{"allgather_bucket_size", "200"}, {"reduce_scatter", "false"}}}};
  const DTypes fp32, bf16_sums{at::kBFloat16, at::kFloat, at::kBFloat16, at::kFloat};
  for (const Variant& variant : variants)
    for (const DTypes& dtypes : {fp32, bf16_sums}) {
      const Variant sparse = with(variant, "sparse_gradients", "true");
      fakes::PartitionRank planned(library_of(sparse), sparse.options, 3, 0, parameters(dtypes));
      fakes::run_step(planned, 2, [](FlatParameter&, const at::Tensor&, int) {});
      for (const Touched touched : {Touched::None, Touched::Few, Touched::All}) {
        CAPTURE(describe(variant), c10::toString(dtypes.reduction), static_cast<int>(touched));
        CHECK(run(variant, "true", 3, dtypes, touched, 2).ledger.peak == planned.store().ledger().peak);
      }
    }
}

TEST_CASE("sparse_gradients is refused with a tied head and with gradients_on_wire") {
  const auto refusal = [](fakes::OptionTexts options, const std::vector<FlatParameterInfo>& infos) {
    options.emplace_back("sparse_gradients", "true");
    return error_of([&] { const fakes::PartitionRank rank(library_of({"zero1", {}}), options, 2, 0, infos); });
  };
  std::vector<FlatParameterInfo> tied = parameters(), without = parameters(), second_stage = parameters();
  tied[0].parameters[0].info.tie = "embedding";
  without[0].parameters[0].info.linear_only = without[0].parameters[1].info.linear_only = true;
  second_stage[0].layers = {2};
  CHECK_THAT(refusal({}, tied), Contains("embedding is tied"));
  CHECK(refusal({}, without).empty());  // a line says that it changes nothing
  CHECK_THAT(refusal({{"gradients_on_wire", "int8"}}, parameters()),
             Contains("gradients_on_wire is int8 and sparse_gradients is true"));
  CHECK(refusal({}, second_stage).empty());
}
