// Sums of compressed gradients of the sharding partitioners, against one process that rounds the same numbers; what a
// resumed run has of the errors.
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <strata/fakes/saved_state.hpp>

#include <algorithm>
#include <string>

#include "compressed_messages.hpp"
#include "first.hpp"

#include "catch.hpp"

using namespace strata;

namespace {

struct Case {
  Variant variant;
  int ranks = 2;
  int bits = 8;
  bool feedback = false;
  std::int64_t piece_elements = any_size;
  int error_reset = 0;  // steps; 0: errors are kept
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
  Simulation simulation{{one.bits, small_block}, one.feedback ? 0.8F : 0.0F, {}};
  const std::vector<ShardLayout> layouts = ShardLayout::of(flat, 0, one.ranks, one.piece_elements);
  std::map<int, Floats> sums;
  for (int step = 0; step < steps; ++step) {
    if (one.error_reset > 0 && step % one.error_reset == 0) simulation.errors.clear();
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

// Runs steps on threads and compares every slice with `expected`: empty, or the first that differs.
std::string wrong_gradients(const Case& one, int steps, int micro_batches, const std::map<int, Floats>& expected) {
  const fakes::PluginLibrary& library = library_of(one.variant);
  const fakes::PartitionGroups groups(library, one.variant.options, one.ranks, fakes::Movement::AtWait);
  First first;
  fakes::on_ranks(one.ranks, [&](CheckedGroup& world) {
    fakes::PartitionRank rank(library, one.variant.options, groups, world.rank(), odd_parameters());
    for (int step = 0; step < steps; ++step)
      fakes::run_step(rank, micro_batches, [&](FlatParameter& flat, const at::Tensor& buffer, int micro_batch) {
        buffer.add_(gradient_of(step, micro_batch, world.rank(), flat));
      });
    for (const Slice& slice : rank.owned()) {
      if (!slice.flat->info().trainable) continue;
      const Floats& sum = expected.at(slice.flat->info().id);
      const at::Tensor wanted = at::tensor(Floats(sum.begin() + slice.begin, sum.begin() + slice.end));
      first.expect(rank.gradient(slice), wanted, world.rank(), steps - 1, "gradient of " + slice.flat->info().name,
                   slice.begin);
    }
    first.expect(at::tensor({rank.slots().taken()}), at::zeros({1}), world.rank(), steps, "slots taken at the end");
  });
  return first.text();
}

}  // namespace

TEST_CASE("sums of compressed gradients are those of one process that rounds the same numbers") {
  const auto own = flat_parameters_of(odd_parameters());
  for (const char* plugin : {"zero1", "zero2", "zero3"}) {
    for (const int ranks : {1, 2, 3}) {
      for (const int bits : {8, 4}) {
        for (const bool feedback : {false, true}) {
          for (const std::int64_t piece : {any_size, std::int64_t{100}}) {
            if (ranks == 1) continue;
            Case one{with(with_small_blocks(plugin), "gradients_on_wire", bits == 8 ? "int8" : "int4"), ranks, bits,
                     feedback, piece};
            if (feedback) one.variant = with(one.variant, "error_feedback", "true");
            if (piece != any_size) one.variant = with(one.variant, "reduce_bucket_size", "100");
            CAPTURE(describe(one.variant), ranks);
            for (const int micro_batches : {1, 3}) {
              const bool each = std::string(plugin) != "zero1";
              const auto expected = simulate(pointers(own), one, 3, micro_batches, each);
              CHECK(wrong_gradients(one, 3, micro_batches, expected) == "");
            }
          }
        }
      }
    }
  }
}

TEST_CASE("errors are forgotten before steps 0, N, 2 N") {
  const auto own = flat_parameters_of(odd_parameters());
  for (const char* plugin : {"zero1", "zero2"})
    for (const int reset : {1, 3, 4})
      for (const int steps : {3, 4, 5, 9}) {
        Case one{with(with_small_blocks(plugin), "gradients_on_wire", "int4"), 2, 4, true};
        one.variant = with(with(one.variant, "error_feedback", "true"), "error_reset", std::to_string(reset));
        one.error_reset = reset;
        CAPTURE(describe(one.variant), steps);
        CHECK(wrong_gradients(one, steps, 1, simulate(pointers(own), one, steps, 1, true)) == "");
      }
}

TEST_CASE("one rank sends nothing, so nothing is rounded") {
  Case one{with(with_small_blocks("zero2"), "gradients_on_wire", "int4"), 1, 4};
  const auto own = flat_parameters_of(odd_parameters());
  std::map<int, Floats> exact;
  for (const auto& flat : own)
    exact[flat->info().id] = floats(gradient_of(0, 0, 0, *flat) + gradient_of(0, 1, 0, *flat));
  CHECK(wrong_gradients(one, 1, 2, exact) == "");
}

TEST_CASE("sums across groups are rounded once more, the same on all owners") {
  const auto own = flat_parameters_of(odd_parameters());
  constexpr int ranks = 4, size = 2;
  for (const char* stage : {"1", "2", "3"}) {
    for (const int bits : {8, 4}) {
      Variant variant = with(with_small_blocks("hybrid"), "gradients_on_wire", bits == 8 ? "int8" : "int4");
      variant = with(with(variant, "stage", stage), "shard_size", std::to_string(size));
      CAPTURE(describe(variant));
      Simulation inside{{bits, small_block}, 0.0F, {}}, gathered{{8, small_block}, 0.0F, {}};
      const std::vector<ShardLayout> layouts = ShardLayout::of(pointers(own), 0, size, any_size);
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
      CHECK(wrong_gradients({variant, ranks, bits}, 1, 1, expected) == "");
    }
  }
}

TEST_CASE("a resumed run has the errors, unless its gradients are cut differently") {
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
