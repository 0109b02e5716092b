// The sharding partitioners' promises in numbers: which elements a rank owns, the bytes it holds, the bytes and calls
// it sends, against the formulas of their headers; and what they refuse.
#include <strata/error.hpp>
#include <strata/toolbox/shard_layout.hpp>

#include <algorithm>
#include <limits>
#include <map>

#include "variant.hpp"

#include "catch.hpp"

using namespace strata;

namespace {

// What divides by every number of ranks here without padding: the formulas know none.
const std::vector<std::int64_t> sizes{3 * 8 * 64 * 3, 3 * 8 * 64, 3 * 8 * 64 * 2, 3 * 8 * 64 * 3};

std::vector<FlatParameterInfo> infos(const DTypes& dtypes = {}) {
  std::vector<FlatParameterInfo> list;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    list.push_back(fakes::flat_parameter_info(static_cast<int>(i), sizes[i], dtypes));
  return list;
}

std::int64_t all_elements() {
  std::int64_t sum = 0;
  for (const std::int64_t size : sizes) sum += size;
  return sum;
}

// One step after the first publish, which a run does once, on a rank of several that are not there.
Traffic traffic_of_step(fakes::PartitionRank& rank, int micro_batches) {
  fakes::run_step(rank, micro_batches, [](FlatParameter&, const at::Tensor&, int) {});
  for (FlatParameter* flat : rank.flat_parameters()) rank.partitioner().publish(*flat);
  return rank.traffic();
}

Traffic traffic_of_step(const Variant& variant, int ranks, int micro_batches, const DTypes& dtypes = {}) {
  fakes::PartitionRank rank(library_of(variant), variant.options, ranks, 0, infos(dtypes));
  return traffic_of_step(rank, micro_batches);
}

double over_ddp(const Variant& variant, int ranks, int micro_batches, const DTypes& dtypes = {}) {
  return static_cast<double>(traffic_of_step(variant, ranks, micro_batches, dtypes).total_bytes()) /
         static_cast<double>(traffic_of_step({"ddp", {}}, ranks, micro_batches, dtypes).total_bytes());
}

const Variant zero1{"zero1", {}};
const Variant zero2{"zero2", {}};
const Variant zero3{"zero3", {}};

}  // namespace

TEST_CASE("a shard layout gives every element to one rank, in pieces that may be of any size") {
  for (const std::int64_t elements : {1, 2, 7, 8, 9, 63, 64, 1000, 4097}) {
    for (const int ranks : {1, 2, 3, 4, 7, 64}) {
      for (const std::int64_t piece_elements :
           {std::int64_t{1}, std::int64_t{100}, std::int64_t{512}, std::numeric_limits<std::int64_t>::max()}) {
        CAPTURE(elements, ranks, piece_elements);
        const toolbox::ShardLayout layout(elements, 0, ranks, piece_elements);
        std::int64_t next = 0;
        for (std::size_t number = 0; number < layout.pieces().size(); ++number) {
          const toolbox::ShardLayout::Piece& piece = layout.pieces()[number];
          REQUIRE((piece.begin == next && piece.in_parts && piece.part * ranks == piece.elements));
          next = piece.begin + piece.elements;
          REQUIRE((next <= elements || number + 1 == layout.pieces().size()));  // only the last is padded
          REQUIRE(piece.elements <= std::max<std::int64_t>(piece_elements, 8 * ranks));
          std::int64_t owned = piece.begin;
          for (int rank = 0; rank < ranks; ++rank) {
            const toolbox::ShardLayout of_rank(elements, rank, ranks, piece_elements);
            const auto [begin, end] = of_rank.owned(of_rank.pieces()[number]);
            REQUIRE(begin == owned);
            owned = end;
            REQUIRE((begin == end || begin % 8 == 0));
          }
          REQUIRE(owned == std::min(elements, next));
        }
        CHECK(next == layout.whole());
        CHECK(layout.whole() >= elements);
        CHECK(layout.whole() < elements + (ranks == 1 ? 1 : 8 * ranks));
        CHECK(layout.part() * ranks == layout.whole());
      }
    }
  }
}

namespace {

// A flat parameter of parameters of these elements and units.
FlatParameterInfo with_units(int id, const std::vector<std::pair<std::int64_t, std::int64_t>>& parameters) {
  FlatParameterInfo info = fakes::flat_parameter_info(id, 1);
  info.elements = 0;
  info.parameters.clear();
  for (const auto& [elements, unit] : parameters) {
    ParameterSpan& span = info.parameters.emplace_back();
    span.info.name = "p" + std::to_string(id) + "." + std::to_string(info.parameters.size());
    span.info.shape = {elements};
    span.offset = info.elements;
    span.unit = unit;
    info.elements += elements;
  }
  return info;
}

// Of six layers of a transformer as muon sees them: matrices in whole units, and vectors.
std::vector<FlatParameterInfo> hidden_layers() {
  std::vector<FlatParameterInfo> infos;
  constexpr std::int64_t d = 80 * 80;
  for (int layer = 0; layer < 6; ++layer)
    infos.push_back(with_units(layer, {{4 * d, 4 * d}, {4 * d, 4 * d}, {3 * d, d}, {d, d}, {13 * 80, 1}}));
  return infos;
}

}  // namespace

TEST_CASE("units that are never cut are spread evenly over the ranks, and travel without padding") {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    CAPTURE(ranks);
    std::int64_t most = 0, least = std::numeric_limits<std::int64_t>::max(), sum = 0;
    std::map<std::pair<int, std::int64_t>, int> owners;  // of the element of a flat parameter
    for (int own = 0; own < ranks; ++own) {
      fakes::PartitionRank rank(library_of(zero2), {}, ranks, own, hidden_layers());
      std::int64_t owned = 0;
      for (const Slice& slice : rank.owned()) {
        CHECK(slice.flat->info().cut_up_to(slice.begin) == slice.begin);
        CHECK(slice.flat->info().cut_up_to(slice.end) == slice.end);
        owned += slice.end - slice.begin;
        for (std::int64_t at = slice.begin; at < slice.end; ++at) ++owners[{slice.flat->info().id, at}];
      }
      if (own > 0) CHECK(owned <= most);  // the first rank has the most
      most = std::max(most, owned);
      least = std::min(least, owned);
      sum += owned;
      fakes::PartitionRank ddp(library_of({"ddp", {}}), {}, ranks, own, hidden_layers());
      const std::int64_t padding = 6 * 64 * ranks * 4;  // of the vectors
      const std::int64_t bytes = traffic_of_step(rank, 1).total_bytes();
      CHECK(bytes >= traffic_of_step(ddp, 1).total_bytes());
      CHECK(bytes <= traffic_of_step(ddp, 1).total_bytes() + 2 * padding);
    }
    CHECK(static_cast<std::int64_t>(owners.size()) == sum);
    CHECK(sum == 6 * (12 * 80 * 80 + 13 * 80));
    CHECK(most - least <= 4 * 80 * 80);  // the largest unit
    if (ranks == 4) CHECK(static_cast<double>(most) <= 1.01 * static_cast<double>(sum) / ranks);
  }
}

TEST_CASE("blocks are cut into equal parts of whole blocks, in one collective as single elements are") {
  const std::vector<FlatParameterInfo> infos{with_units(0, {{256 * 12, 256}, {256 * 7 + 100, 256}, {100, 1}, {3, 1}})};
  const auto calls = [&](const Variant& variant) {
    fakes::PartitionRank rank(library_of(variant), variant.options, 4, 0, infos);
    fakes::run_step(rank, 1, [](FlatParameter&, const at::Tensor&, int) {});
    rank.partitioner().publish(*rank.flat_parameters()[0]);
    for (const Slice& slice : rank.owned()) CHECK((slice.end - slice.begin) % 256 == 0);
    return rank.traffic().calls_of(Collective::ReduceScatter) + 100 * rank.traffic().calls_of(Collective::AllGather) +
           10000 * rank.traffic().calls_of(Collective::Reduce);
  };
  CHECK(calls(zero1) == 101);
  // What begins within a block of the one before it is cut by itself, and what equal parts leave over has one owner.
  const std::vector<FlatParameterInfo> odd{with_units(0, {{256 * 8 + 1, 256}, {256 * 9, 256}, {256 * 3, 1}})};
  const fakes::PartitionRank rank(library_of(zero1), {}, 4, 0, odd);
  const toolbox::ShardLayout layout = toolbox::ShardLayout::of(rank.flat_parameters(), 0, 4, 1 << 20)[0];
  REQUIRE(layout.pieces().size() == 3);
  CHECK((layout.pieces()[0].in_parts && layout.pieces()[0].elements == 256 * 8));
  CHECK((!layout.pieces()[1].in_parts && layout.pieces()[1].elements == 1));
  CHECK((layout.pieces()[2].in_parts && layout.pieces()[2].elements == 256 * 12 && layout.whole() == 256 * 20 + 1));
}

TEST_CASE("equal parts are whole blocks and whole vectors of eight elements") {
  const std::vector<FlatParameterInfo> infos{with_units(0, {{12 * 40, 12}, {100, 1}})};
  const fakes::PartitionRank rank(library_of(zero1), {}, 4, 0, infos);
  const toolbox::ShardLayout layout = toolbox::ShardLayout::of(rank.flat_parameters(), 0, 4, 1 << 20)[0];
  REQUIRE(layout.pieces().size() == 1);
  CHECK((layout.pieces()[0].in_parts && layout.part() == 168));  // the least multiple of 12 and 8 from 580 / 4 on
}

TEST_CASE("logical bytes sent over ddp's are the formulas of the plugins' headers, exactly") {
  for (const int ranks : {2, 3, 4, 64}) {
    for (const int micro_batches : {1, 2, 4}) {
      const double a = micro_batches;
      CAPTURE(ranks, micro_batches);
      CHECK(over_ddp(zero1, ranks, micro_batches) == 1.0);
      CHECK(over_ddp(with(zero1, "reduce_scatter", "false"), ranks, micro_batches) == 1.5);
      CHECK(over_ddp(zero2, ranks, micro_batches) == (a + 1) / 2);
      CHECK(over_ddp(with(zero2, "reduce_scatter", "false"), ranks, micro_batches) == (2 * a + 1) / 2);
      CHECK(over_ddp(with(zero2, "gradient_reduction", "last_micro_batch"), ranks, micro_batches) == 1.0);
      CHECK(over_ddp(zero3, ranks, micro_batches) == 3 * a / 2);
      CHECK(over_ddp(with(zero3, "gradient_reduction", "last_micro_batch"), ranks, micro_batches) == (1 + 2 * a) / 2);
      const DTypes mixed{at::kBFloat16, at::kFloat, at::kFloat, at::kFloat};  // P = R / 2
      CHECK(over_ddp(zero1, ranks, micro_batches, mixed) == 0.75);
      CHECK(over_ddp(zero2, ranks, micro_batches, mixed) == (a + 0.5) / 2);
      CHECK(over_ddp(zero3, ranks, micro_batches, mixed) == a);
    }
  }
}

TEST_CASE("hybrid sends its stage's bytes inside a group and its part's all-reduce across, once") {
  const std::int64_t bytes = all_elements() * 4;
  const int ranks = 12;
  for (const int size : {1, 2, 3, 4, 6, 12}) {
    const std::int64_t replicas = ranks / size;
    const std::int64_t inside = bytes * (size - 1) / size;
    const std::int64_t across = 2 * (bytes / size) * (replicas - 1) / replicas;
    for (const std::int64_t a : {1, 4}) {
      CAPTURE(size, a);
      const Variant hybrid{"hybrid", {{"shard_size", std::to_string(size)}}};
      const auto sent = [&](const Variant& variant) {
        return traffic_of_step(variant, ranks, static_cast<int>(a)).total_bytes();
      };
      CHECK(sent(with(hybrid, "stage", "1")) == 2 * inside + across);
      CHECK(sent(with(hybrid, "stage", "2")) == (size > 1 ? a + 1 : 0) * inside + across);
      CHECK(sent(hybrid) == 3 * a * inside + across);
      const std::int64_t everywhere = bytes * (ranks - 1) / ranks;
      CHECK(sent(with(hybrid, "secondary_shard", "true")) == (a + 1) * everywhere + (2 * a - 1) * inside);
    }
  }
}

TEST_CASE("buckets and the time of reduction decide the number of collectives, not the bytes") {
  const auto calls = [](const Variant& variant, Collective collective) {
    return traffic_of_step(variant, 4, 4).calls_of(collective);
  };
  CHECK(calls(zero1, Collective::ReduceScatter) == 4);
  CHECK(calls(zero1, Collective::AllGather) == 4);
  CHECK(calls(zero2, Collective::ReduceScatter) == 16);
  CHECK(calls(with(zero2, "gradient_reduction", "last_micro_batch"), Collective::ReduceScatter) == 4);
  CHECK(calls(with(zero2, "reduce_scatter", "false"), Collective::AllReduce) == 16);
  CHECK(calls(zero3, Collective::AllGather) == 32);
  // Layers of 3, 1, 2 and 3 buckets.
  const Variant small = with(zero1, "reduce_bucket_size", std::to_string(3 * 8 * 64));
  CHECK(calls(small, Collective::ReduceScatter) == 9);
  CHECK(calls(small, Collective::AllGather) == 9);
  CHECK(calls(with(zero1, "allgather_bucket_size", std::to_string(3 * 8 * 64 + 5)), Collective::AllGather) == 9);
  const Variant hybrid{"hybrid", {{"shard_size", "4"}, {"stage", "1"}, {"allgather_bucket_size", "1541"}}};
  CHECK(calls(hybrid, Collective::AllGather) == 9);
  CHECK(over_ddp(small, 4, 1) == 1.0);
  // What persists is gathered once a step and not for its use.
  CHECK(calls(with(zero3, "persistence_threshold", std::to_string(3 * 8 * 64)), Collective::AllGather) == 3 * 8 + 1);
}

TEST_CASE("a rank holds its stage's share, to the byte") {
  const std::int64_t psi = all_elements();
  const std::int64_t largest = *std::max_element(sizes.begin(), sizes.end());
  const std::int64_t slots = sizes[0] + sizes[1] + sizes[2];  // one of each size
  const std::int64_t lent =
      slots + largest;  // the first layer's gradient travels while the last, of its size, is computed
  const std::int64_t n = 4;
  const DTypes mixed{at::kBFloat16, at::kFloat, at::kFloat, at::kFloat};
  const auto held = [&](const Variant& variant) {
    fakes::PartitionRank rank(library_of(variant), variant.options, static_cast<int>(n), 0, infos(mixed));
    fakes::run_step(rank, 2, [](FlatParameter&, const at::Tensor&, int) {});
    const auto of = [&](Category category) {
      return rank.store().ledger().peak[static_cast<std::size_t>(category)][0];
    };
    CHECK(of(Category::Bucket) == 0);
    return std::vector<std::int64_t>{of(Category::Parameter), of(Category::Gradient), of(Category::Gathered)};
  };
  using Bytes = std::vector<std::int64_t>;
  CHECK(held({"ddp", {}}) == Bytes{2 * psi, 4 * psi, 0});
  CHECK(held(zero1) == Bytes{2 * psi, 4 * psi, 0});
  CHECK(held(zero2) == Bytes{2 * psi, 4 * psi / n + 4 * lent, 0});
  CHECK(held(with(zero2, "overlap_comm", "false")) == Bytes{2 * psi, 4 * psi / n + 4 * slots, 0});
  CHECK(held(with(zero2, "gradient_reduction", "last_micro_batch")) == held(zero1));
  CHECK(held(zero3) == Bytes{2 * psi / n, 4 * psi / n + 4 * lent, 2 * slots});
  CHECK(held(with(zero3, "persistence_threshold", std::to_string(largest - 1))) ==
        Bytes{2 * psi / n + 2 * (sizes[1] + sizes[2]) * (n - 1) / n, 4 * psi / n + 4 * lent, 2 * largest});
  const Variant hybrid{"hybrid", {{"shard_size", std::to_string(2)}}};
  CHECK(held(hybrid) == Bytes{2 * psi / 2, 4 * psi / 2 + 4 * lent, 2 * slots});
  CHECK(held(with(hybrid, "stage", "1")) == Bytes{2 * psi, 4 * psi, 0});
  CHECK(held(with(hybrid, "secondary_shard", "true")) ==
        Bytes{2 * psi / n + 2 * psi / 2, 4 * psi / n + 4 * lent, 2 * slots});
}

TEST_CASE("impossible settings are refused with the numbers and the remedy") {
  const auto says = [](const std::string& said, std::initializer_list<const char*> parts) {
    CAPTURE(said);
    CHECK(said.find('\n') == std::string::npos);
    for (const char* part : parts) CHECK(said.find(part) != std::string::npos);
  };
  const auto hybrid = [](std::int64_t size) { return Variant{"hybrid", {{"shard_size", std::to_string(size)}}}; };
  says(refusal(hybrid(3), 4), {"shard_size is 3, which does not divide the 4 data-parallel ranks", "are 2 and 4"});
  says(refusal(hybrid(5), 12), {"shard_size is 5", "are 4 and 6"});
  says(refusal(hybrid(2), 1), {"shard_size is 2", "is 1"});
  says(refusal(hybrid(100), 6), {"shard_size is 100", "is 6"});
  CHECK(refusal(hybrid(4), 12).empty());
  says(refusal(with(with(hybrid(2), "stage", "2"), "secondary_shard", "true"), 4),
       {"secondary_shard is true and stage is 2", "needs stage 3"});
  for (const char* option : {"prefetch_layers", "prefetch_bucket_size", "max_live_parameters", "max_reuse_distance",
                             "persistence_threshold", "model_persistence_threshold"})
    says(refusal(with(with(hybrid(2), "stage", "1"), option, "7"), 4), {option, "stage is 1", "needs stage 3"});
  for (const char* plugin : {"zero1", "zero2", "zero3", "hybrid"}) {
    const Variant plain{plugin, {}};
    OptionValues values = library_of(plain).values({{"prescale_gradients", "false"}});
    for (const double factor : {3.0, 0.0, -2.0, 1e-300, 1e300, std::numeric_limits<double>::quiet_NaN()}) {
      values.set("gradient_predivide_factor", factor);
      says(refusal(plain, values, 4), {"gradient_predivide_factor is", "a power of two"});
    }
    says(refusal(with(plain, "gradient_predivide_factor", "2.0"), 4),
         {"gradient_predivide_factor is 2", "prescale_gradients to false"});
    CHECK(refusal(with(with(plain, "prescale_gradients", "false"), "gradient_predivide_factor", "4.0"), 4).empty());
  }
}
