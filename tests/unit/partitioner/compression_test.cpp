// Compressed weights and gradients of the sharding partitioners, against one process that rounds the same numbers by
// the reference; the bytes that travel and are held; what a resumed run has of the errors.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <strata/error.hpp>
#include <strata/fakes/saved_state.hpp>
#include <strata/toolbox/shard_layout.hpp>

#include <atomic>
#include <limits>
#include <mutex>

#include "toolbox/reference_code.hpp"
#include "variant.hpp"

#include "catch.hpp"

using namespace strata;

namespace {

using Floats = std::vector<float>;
using toolbox::ShardLayout;

constexpr std::int64_t block = 16;

Variant with(Variant variant, const std::string& name, const std::string& value) {
  variant.options.emplace_back(name, value);
  return variant;
}
Variant with_small_blocks(const std::string& plugin) {
  return with({plugin, {}}, "wire_block_size", std::to_string(block));
}

// One of several parameters, odd sizes, one with a unit that is not cut, a frozen one.
std::vector<FlatParameterInfo> odd_parameters() {
  std::vector<FlatParameterInfo> infos = fakes::odd_flat_parameters();
  infos[2].parameters[0].unit = 37;
  FlatParameterInfo several = fakes::flat_parameter_info(static_cast<int>(infos.size()), 200 + 3 + 5 + 117);
  several.parameters.clear();
  std::int64_t offset = 0;
  for (const std::int64_t elements : {200, 3, 5, 117}) {
    ParameterSpan& span = several.parameters.emplace_back();
    span.info.name = "several." + std::to_string(offset);
    span.info.shape = {elements};
    span.offset = offset;
    offset += elements;
  }
  infos.push_back(several);
  return infos;
}

at::Tensor drawn(double seed, std::int64_t elements) {
  return at::arange(elements, at::kDouble).mul(1.7 + 0.13 * seed).add(seed).sin().mul(1.0 + seed).to(at::kFloat);
}
at::Tensor gradient_of(int step, int micro_batch, int rank, const FlatParameter& flat) {
  return drawn(0.3 * step + 0.7 * micro_batch + 0.9 * rank + 0.1 * flat.info().id, flat.elements());
}

Floats floats(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach().to(at::kFloat).contiguous();
  return {plain.const_data_ptr<float>(), plain.const_data_ptr<float>() + plain.numel()};
}

// A whole gradient or parameter, and what messages make of it.
struct Simulation {
  ReferenceCode code;
  float beta = 0.0F;
  std::map<std::string, Floats> errors;  // by what travels

  std::vector<std::int64_t> borders(const FlatParameterInfo& flat, std::int64_t begin) const {
    std::vector<std::int64_t> inside;
    for (const ParameterSpan& span : flat.parameters)
      if (span.offset > begin) inside.push_back(span.offset - begin);
    return inside;
  }
  Floats sent(const FlatParameterInfo& flat, const Floats& whole, std::int64_t begin, std::int64_t end,
              const std::string& from) {
    const Floats values(whole.begin() + begin, whole.begin() + end);
    if (beta == 0.0F) return code.sent(values, borders(flat, begin));
    Floats& error =
        errors.try_emplace(from + " " + flat.name + " " + std::to_string(begin), values.size()).first->second;
    return code.sent(values, borders(flat, begin), &error, beta);
  }
  // The sum over `ranks` of elements [begin, end), each rank's own `whole`.
  Floats sum(const FlatParameterInfo& flat, const std::vector<Floats>& whole, std::int64_t begin, std::int64_t end,
             const std::vector<int>& ranks, const std::string& hop) {
    Floats result(static_cast<std::size_t>(end - begin));
    for (const int rank : ranks) {
      const Floats one = sent(flat, whole[static_cast<std::size_t>(rank)], begin, end, hop + std::to_string(rank));
      for (std::size_t i = 0; i < one.size(); ++i) result[i] += one[i];
    }
    return result;
  }
};

struct Range {
  std::int64_t begin = 0, end = 0;
};

std::vector<Range> ranges_of(const ShardLayout& layout, int ranks) {
  std::vector<Range> ranges;
  for (const ShardLayout::Piece& piece : layout.pieces()) {
    const std::int64_t length = piece.in_parts ? piece.elements / ranks : piece.elements;
    for (std::int64_t begin = 0; begin < piece.elements; begin += length)
      ranges.push_back({piece.begin + begin, piece.begin + begin + length});
  }
  return ranges;
}

constexpr std::int64_t all = std::numeric_limits<std::int64_t>::max();

struct Case {
  Variant variant;
  int ranks = 2;
  int bits = 8;
  bool feedback = false;
  std::int64_t piece_elements = all;
};

std::vector<int> first(int count) {
  std::vector<int> ranks;
  for (int rank = 0; rank < count; ++rank) ranks.push_back(rank);
  return ranks;
}

// The gradients of all flat parameters after each step, by a simulation of one process. `each`: every micro-batch is
// reduced.
std::map<int, Floats> simulate(const std::vector<FlatParameter*>& flat, const Case& one, int steps, int micro_batches,
                               bool each) {
  Simulation simulation{{one.bits, block}, one.feedback ? 0.8F : 0.0F, {}};
  const std::vector<ShardLayout> layouts = ShardLayout::of(flat, 0, one.ranks, one.piece_elements);
  std::map<int, Floats> sums;
  for (int step = 0; step < steps; ++step) {
    for (const FlatParameter* parameter : flat) {
      if (!parameter->info().trainable) continue;
      const ShardLayout& layout = layouts[static_cast<std::size_t>(parameter->info().id)];
      Floats& total = sums[parameter->info().id];
      total.assign(static_cast<std::size_t>(layout.whole()), 0.0F);
      const int reductions = each ? micro_batches : 1;
      for (int reduction = 0; reduction < reductions; ++reduction) {
        std::vector<Floats> whole;
        for (int rank = 0; rank < one.ranks; ++rank) {
          at::Tensor sum = at::zeros({layout.whole()});
          for (int micro_batch = each ? reduction : 0; micro_batch < (each ? reduction + 1 : micro_batches);
               ++micro_batch)
            sum.narrow(0, 0, parameter->elements()) += gradient_of(step, micro_batch, rank, *parameter);
          whole.push_back(floats(sum));
        }
        for (const auto& [begin, end] : ranges_of(layout, one.ranks)) {
          const Floats part = simulation.sum(parameter->info(), whole, begin, end, first(one.ranks), "");
          for (std::size_t i = 0; i < part.size(); ++i) total[static_cast<std::size_t>(begin) + i] += part[i];
        }
      }
    }
  }
  return sums;
}

// Runs steps on threads and compares every slice with `expected`.
int wrong_gradients(const Case& one, int steps, int micro_batches, const std::map<int, Floats>& expected) {
  const fakes::PluginLibrary& library = library_of(one.variant);
  const fakes::PartitionGroups groups(library, one.variant.options, one.ranks, fakes::Movement::AtWait);
  std::atomic<int> wrong{0};
  fakes::on_ranks(one.ranks, [&](CheckedGroup& world) {
    fakes::PartitionRank rank(library, one.variant.options, groups, world.rank(), odd_parameters());
    for (int step = 0; step < steps; ++step)
      fakes::run_step(rank, micro_batches, [&](FlatParameter& flat, const at::Tensor& buffer, int micro_batch) {
        buffer.add_(gradient_of(step, micro_batch, world.rank(), flat));
      });
    for (const Slice& slice : rank.owned()) {
      if (!slice.flat->info().trainable) continue;
      const Floats& sum = expected.at(slice.flat->info().id);
      wrong += floats(rank.gradient(slice)) == Floats(sum.begin() + slice.begin, sum.begin() + slice.end) ? 0 : 1;
    }
    wrong += rank.slots().taken();
  });
  return wrong;
}

std::vector<std::unique_ptr<FlatParameter>> flat_parameters_of(const std::vector<FlatParameterInfo>& infos) {
  std::vector<std::unique_ptr<FlatParameter>> list;
  for (const FlatParameterInfo& info : infos) list.push_back(std::make_unique<FlatParameter>(info, at::kCPU));
  return list;
}

std::vector<FlatParameter*> pointers(const std::vector<std::unique_ptr<FlatParameter>>& list) {
  std::vector<FlatParameter*> result;
  for (const auto& one : list) result.push_back(one.get());
  return result;
}

}  // namespace

TEST_CASE("sums of compressed gradients are those of one process that rounds the same numbers") {
  const auto own = flat_parameters_of(odd_parameters());
  for (const char* plugin : {"zero1", "zero2", "zero3"}) {
    for (const int ranks : {1, 2, 3}) {
      for (const int bits : {8, 4}) {
        for (const bool feedback : {false, true}) {
          for (const std::int64_t piece : {all, std::int64_t{100}}) {
            if (ranks == 1) continue;
            Case one{with(with_small_blocks(plugin), "gradients_on_wire", bits == 8 ? "int8" : "int4"), ranks, bits,
                     feedback, piece};
            if (feedback) one.variant = with(one.variant, "error_feedback", "true");
            if (piece != all) one.variant = with(one.variant, "reduce_bucket_size", "100");
            CAPTURE(describe(one.variant), ranks);
            for (const int micro_batches : {1, 3}) {
              const bool each = std::string(plugin) != "zero1";
              const auto expected = simulate(pointers(own), one, 3, micro_batches, each);
              CHECK(wrong_gradients(one, 3, micro_batches, expected) == 0);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("one rank sends nothing, so nothing is rounded") {
  Case one{with(with_small_blocks("zero2"), "gradients_on_wire", "int4"), 1, 4};
  const auto own = flat_parameters_of(odd_parameters());
  std::map<int, Floats> exact;
  for (const auto& flat : own)
    exact[flat->info().id] = floats(gradient_of(0, 0, 0, *flat) + gradient_of(0, 1, 0, *flat));
  CHECK(wrong_gradients(one, 1, 2, exact) == 0);
}

TEST_CASE("across groups sums are rounded once more, and all ranks that own a part have the same") {
  const auto own = flat_parameters_of(odd_parameters());
  constexpr int ranks = 4, size = 2;
  for (const char* stage : {"1", "2", "3"}) {
    for (const int bits : {8, 4}) {
      Variant variant = with(with_small_blocks("hybrid"), "gradients_on_wire", bits == 8 ? "int8" : "int4");
      variant = with(with(variant, "stage", stage), "shard_size", std::to_string(size));
      CAPTURE(describe(variant));
      Simulation inside{{bits, block}, 0.0F, {}}, gathered{{8, block}, 0.0F, {}};
      const std::vector<ShardLayout> layouts = ShardLayout::of(pointers(own), 0, size, all);
      std::map<int, Floats> expected;
      for (const auto& flat : own) {
        const FlatParameterInfo& info = flat->info();
        if (!info.trainable) continue;
        const ShardLayout& layout = layouts[static_cast<std::size_t>(info.id)];
        std::vector<Floats> whole, groups(2, Floats(static_cast<std::size_t>(layout.whole())));
        for (int rank = 0; rank < ranks; ++rank) {
          at::Tensor padded = at::zeros({layout.whole()});
          padded.narrow(0, 0, flat->elements()).copy_(gradient_of(0, 0, rank, *flat));
          whole.push_back(floats(padded));
        }
        Floats& sum = expected[info.id];
        sum.resize(static_cast<std::size_t>(layout.whole()));
        for (const auto& [begin, end] : ranges_of(layout, size)) {
          for (int group = 0; group < 2; ++group) {
            const Floats part = inside.sum(info, whole, begin, end, {2 * group, 2 * group + 1}, "");
            std::copy(part.begin(), part.end(), groups[static_cast<std::size_t>(group)].begin() + begin);
          }
          const std::int64_t share = (end - begin + 1) / 2;
          for (std::int64_t from = begin; from < end; from += share) {
            const std::int64_t to = std::min(end, from + share);
            Floats total(static_cast<std::size_t>(layout.whole()));
            const Floats part = inside.sum(info, groups, from, to, {0, 1}, "");
            std::copy(part.begin(), part.end(), total.begin() + from);
            const Floats result = gathered.sent(info, total, from, to, "");
            std::copy(result.begin(), result.end(), sum.begin() + from);
          }
        }
      }
      CHECK(wrong_gradients({variant, ranks, bits}, 1, 1, expected) == 0);
    }
  }
}

TEST_CASE("all ranks compute with the same rounded weights, and what they own stays exact") {
  const auto own = flat_parameters_of(odd_parameters());
  for (const char* plugin : {"zero1", "zero2", "zero3"}) {
    for (const char* threshold : {"0", "40"}) {
      for (const int ranks : {2, 3}) {
        for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
          Variant variant = with(with_small_blocks(plugin), "weights_on_wire", "int8");
          if (std::string(threshold) != "0") {
            if (std::string(plugin) != "zero3") continue;
            variant = with(variant, "persistence_threshold", threshold);
          }
          CAPTURE(describe(variant), ranks, dtype);
          const std::vector<ShardLayout> layouts = ShardLayout::of(pointers(own), 0, ranks, all);
          Simulation simulation{{8, block}, 0.0F, {}};
          const fakes::PluginLibrary& library = library_of(variant);
          const fakes::PartitionGroups groups(library, variant.options, ranks, fakes::Movement::AtWait);
          std::atomic<int> wrong{0};
          fakes::on_ranks(ranks, [&](CheckedGroup& world) {
            std::vector<FlatParameterInfo> infos = odd_parameters();
            for (FlatParameterInfo& info : infos) info.dtypes = {dtype, at::kFloat, at::kFloat, at::kFloat};
            fakes::PartitionRank rank(library, variant.options, groups, world.rank(), infos);
            for (int step = 0; step < 3; ++step) {
              const auto values = [&](const FlatParameter& flat) {
                return drawn(step + 0.1 * flat.info().id, flat.elements()).to(dtype);
              };
              for (const Slice& slice : rank.owned())
                rank.parameter(slice).copy_(values(*slice.flat).narrow(0, slice.begin, slice.end - slice.begin));
              for (FlatParameter* flat : rank.flat_parameters()) rank.partitioner().publish(*flat);
              for (FlatParameter* flat : rank.flat_parameters()) {
                const ShardLayout& layout = layouts[static_cast<std::size_t>(flat->info().id)];
                at::Tensor padded = at::zeros({layout.whole()});
                padded.narrow(0, 0, flat->elements()).copy_(values(*flat));
                Floats expected = floats(padded);
                for (const auto& [begin, end] : ranges_of(layout, ranks)) {
                  static std::mutex mutex;
                  const std::lock_guard lock(mutex);
                  const Floats part = simulation.sent(flat->info(), expected, begin, end, "");
                  std::copy(part.begin(), part.end(), expected.begin() + begin);
                }
                expected.resize(static_cast<std::size_t>(flat->elements()));
                const at::Tensor rounded = at::tensor(expected).to(dtype);
                for (int use = 0; use < 2; ++use) {
                  rank.partitioner().gather(*flat, Phase::Forward);
                  for (std::size_t i = 0; i < flat->parameters().size(); ++i) {
                    const ParameterSpan& span = flat->info().parameters[i];
                    const at::Tensor found = flat->parameters()[i].detach().reshape({-1});
                    wrong += at::equal(found, rounded.narrow(0, span.offset, span.elements())) ? 0 : 1;
                  }
                  rank.partitioner().release(*flat, Phase::Forward);
                }
              }
              for (const Slice& slice : rank.owned())
                wrong += at::equal(rank.parameter(slice),
                                   values(*slice.flat).narrow(0, slice.begin, slice.end - slice.begin))
                             ? 0
                             : 1;
            }
          });
          CHECK(wrong == 0);
        }
      }
    }
  }
}

namespace {

// Divisible by all that follows: parts of whole blocks.
constexpr std::int64_t elements = 12 * 2048 * 4;

struct Counted {
  Traffic traffic;
  Ledger ledger;
};

Counted counted(const Variant& variant, int ranks, int micro_batches, const DTypes& dtypes = {}) {
  fakes::PartitionRank rank(library_of(variant), variant.options, ranks, 0,
                            {fakes::flat_parameter_info(0, elements, dtypes)});
  fakes::run_step(rank, micro_batches, [](FlatParameter&, const at::Tensor&, int) {});
  for (FlatParameter* flat : rank.flat_parameters()) rank.partitioner().publish(*flat);
  return {rank.traffic(), rank.store().ledger()};
}

}  // namespace

TEST_CASE("bytes on the wire: a byte or half of one per element, and 4 per block of 2048") {
  const std::int64_t int8 = elements + elements / 2048 * 4, int4 = elements / 2 + elements / 2048 * 4;
  const DTypes mixed{at::kBFloat16, at::kFloat, at::kFloat, at::kFloat};
  for (const int ranks : {2, 3, 4}) {
    CAPTURE(ranks);
    const auto part = [&](std::int64_t bytes) { return bytes * (ranks - 1) / ranks; };
    const auto gathered = [&](const Variant& variant, const DTypes& dtypes) {
      return counted(variant, ranks, 1, dtypes).traffic.bytes_of(Collective::AllGather);
    };
    for (const char* plugin : {"zero1", "zero3"}) {
      const Variant exact{plugin, {}}, compressed = with(exact, "weights_on_wire", "int8");
      const int gathers = std::string(plugin) == "zero1" ? 1 : 2;
      CHECK(gathered(exact, {}) == gathers * part(4 * elements));
      CHECK(gathered(exact, mixed) == gathers * part(2 * elements));
      CHECK(gathered(compressed, {}) == gathers * part(int8));
      CHECK(gathered(compressed, mixed) == gathers * part(int8));
      CHECK(static_cast<double>(part(4 * elements)) / static_cast<double>(part(int8)) > 3.99);
    }
    for (const auto& [name, bytes] : {std::pair{"int8", int8}, std::pair{"int4", int4}}) {
      const Counted two = counted(with({"zero2", {}}, "gradients_on_wire", name), ranks, 2);
      CHECK(two.traffic.bytes_of(Collective::AllToAll) == 2 * part(bytes));
      CHECK(two.traffic.bytes_of(Collective::ReduceScatter) == 0);
      const Counted one = counted(with({"zero1", {}}, "gradients_on_wire", name), ranks, 2);
      CHECK(one.traffic.bytes_of(Collective::AllToAll) == part(bytes));
    }
  }
  Variant hybrid = with(with({"hybrid", {}}, "gradients_on_wire", "int4"), "stage", "2");
  const Traffic across = counted(hybrid, 4, 1).traffic;
  CHECK(across.bytes_of(Collective::AllToAll) == int4 / 2 + int4 / 4);
  CHECK(across.bytes_of(Collective::AllGather) == 4 * elements / 2 + int8 / 4);
  CHECK(across.bytes_of(Collective::AllReduce) == 0);
}

TEST_CASE("memory of compressed communication is counted: messages, exact parts, errors") {
  const std::int64_t int8 = elements + elements / 2048 * 4;
  const auto slot = [](std::int64_t bytes) { return (bytes + 511) / 512 * 512; };
  const auto held = [](const Counted& one, Category category) {
    return one.ledger.peak[static_cast<std::size_t>(category)][0];
  };
  const Counted exact = counted({"zero1", {}}, 4, 1);
  const Counted weights = counted(with({"zero1", {}}, "weights_on_wire", "int8"), 4, 1);
  CHECK(held(weights, Category::Parameter) == held(exact, Category::Parameter) + elements);  // fp32: 4 bytes, 4 ranks
  CHECK(held(weights, Category::Bucket) == slot(int8));
  const Variant compressed = with({"zero1", {}}, "gradients_on_wire", "int8");
  const Counted gradients = counted(compressed, 4, 1);
  CHECK(held(gradients, Category::Bucket) == slot(2 * int8));  // sent and received
  CHECK(held(gradients, Category::Gradient) == held(exact, Category::Gradient));
  const Counted errors = counted(with(compressed, "error_feedback", "true"), 4, 1);
  CHECK(held(errors, Category::Gradient) == held(exact, Category::Gradient) + int8);
  CHECK(held(counted(with({"zero3", {}}, "weights_on_wire", "int8"), 4, 1), Category::Parameter) ==
        held(counted({"zero3", {}}, 4, 1), Category::Parameter));
}

TEST_CASE("a resumed run has the errors, and one whose gradients are cut otherwise begins without") {
  Variant variant = with(with_small_blocks("hybrid"), "gradients_on_wire", "int4");
  variant = with(with(variant, "error_feedback", "true"), "error_reset", "4");
  constexpr int ranks = 4, steps = 6;
  const fakes::PluginLibrary& library = library_of(variant);
  // Six steps; where `resume` is not 0 a new partitioner takes over after so many. By rank the last step's gradients.
  const auto train = [&](int resume, const Variant& then, bool with_state) {
    std::vector<std::vector<Floats>> gradients(ranks);
    std::vector<fakes::SavedState> saved(ranks);
    for (const auto& [begin, end] : {std::pair{0, resume}, std::pair{resume, steps}}) {
      const Variant& now = begin == 0 ? variant : then;
      const fakes::PartitionGroups groups(library, now.options, ranks);
      fakes::on_ranks(ranks, [&, begin = begin, end = end](CheckedGroup& world) {
        const auto own = static_cast<std::size_t>(world.rank());
        fakes::PartitionRank rank(library, now.options, groups, world.rank(), odd_parameters());
        if (begin > 0 && with_state) rank.partitioner().load(saved[own], 1);
        for (int step = begin; step < end; ++step)
          fakes::run_step(rank, 1, [&](FlatParameter& flat, const at::Tensor& buffer, int) {
            buffer.add_(gradient_of(step, 0, world.rank(), flat));
          });
        if (end < steps) return rank.partitioner().save(saved[own]);
        for (const Slice& slice : rank.owned())
          if (slice.flat->info().trainable) gradients[own].push_back(floats(rank.gradient(slice)));
      });
    }
    return gradients;
  };
  const auto whole = train(0, variant, true);
  for (const int resume : {1, 3, 5}) {
    CAPTURE(resume);
    CHECK((train(resume, variant, true) == whole));
  }
  CHECK((train(5, variant, false) != whole));
  const Variant other = with(variant, "error_beta", "0.5");
  CHECK((train(3, other, true) != whole));
  Variant cut = variant;
  for (auto& [name, value] : cut.options)
    if (name == "wire_block_size") value = "32";
  CHECK((train(5, cut, true) == train(5, cut, false)));
}

TEST_CASE("compression that has no effect or excludes an option is refused") {
  const auto refusal = [](const Variant& variant) -> std::string {
    try {
      fakes::FakePluginContext context("partitioner/" + variant.plugin, library_of(variant).values(variant.options), 0,
                                       {1, 2, 1});
      library_of(variant).make<Partitioner>(context);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  for (const char* plugin : {"zero1", "zero2", "zero3", "hybrid"}) {
    const Variant plain{plugin, {}};
    CHECK(refusal(with(plain, "error_feedback", "true")).find("no effect while gradients_on_wire is exact") !=
          std::string::npos);
    CHECK(refusal(with(with(plain, "error_feedback", "true"), "gradients_on_wire", "int4")).empty());
  }
  const Variant summed = with(with({"zero2", {}}, "reduce_scatter", "false"), "gradients_on_wire", "int8");
  CHECK(refusal(summed).find("leave reduce_scatter out") != std::string::npos);
}
