// Compressed communication of the sharding partitioners: the weights that all ranks compute with, the bytes that travel
// and are held, and what is refused.
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <mutex>

#include "compressed_messages.hpp"
#include "first.hpp"

#include "catch.hpp"

using namespace strata;

TEST_CASE("all ranks compute with the same rounded weights, and own exact ones") {
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
          const std::vector<ShardLayout> layouts = ShardLayout::of(pointers(own), 0, ranks, any_size);
          Simulation simulation{{8, small_block}, 0.0F, {}};
          const fakes::PluginLibrary& library = library_of(variant);
          const fakes::PartitionGroups groups(library, variant.options, ranks, fakes::Movement::AtWait);
          First first;
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
                    first.expect(found, rounded.narrow(0, span.offset, span.elements()), world.rank(), step,
                                 "gathered values of " + span.info.name);
                  }
                  rank.partitioner().release(*flat, Phase::Forward);
                }
              }
              for (const Slice& slice : rank.owned())
                first.expect(rank.parameter(slice), values(*slice.flat).narrow(0, slice.begin, slice.end - slice.begin),
                             world.rank(), step, "own values of " + slice.flat->info().name, slice.begin);
            }
          });
          CHECK(first.text() == "");
        }
      }
    }
  }
}

namespace {

// Divisible by all that follows: parts of whole blocks.
constexpr std::int64_t flat_elements = 12 * 2048 * 4;

struct Counted {
  Traffic traffic;
  Ledger ledger;
};

Counted counted(const Variant& variant, int ranks, int micro_batches, const DTypes& dtypes = {}) {
  fakes::PartitionRank rank(library_of(variant), variant.options, ranks, 0,
                            {fakes::flat_parameter_info(0, flat_elements, dtypes)});
  fakes::run_step(rank, micro_batches, [](FlatParameter&, const at::Tensor&, int) {});
  for (FlatParameter* flat : rank.flat_parameters()) rank.partitioner().publish(*flat);
  return {rank.traffic(), rank.store().ledger()};
}

}  // namespace

TEST_CASE("bytes on the wire: a byte or half of one per element, and 4 per block of 2048") {
  const std::int64_t int8 = flat_elements + flat_elements / 2048 * 4,
                     int4 = flat_elements / 2 + flat_elements / 2048 * 4;
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
      CHECK(gathered(exact, {}) == gathers * part(4 * flat_elements));
      CHECK(gathered(exact, mixed) == gathers * part(2 * flat_elements));
      CHECK(gathered(compressed, {}) == gathers * part(int8));
      CHECK(gathered(compressed, mixed) == gathers * part(int8));
      CHECK(static_cast<double>(part(4 * flat_elements)) / static_cast<double>(part(int8)) > 3.99);
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
  CHECK(across.bytes_of(Collective::AllGather) == 4 * flat_elements / 2 + int8 / 4);
  CHECK(across.bytes_of(Collective::AllReduce) == 0);
}

// As with `step_policy: local`: ranks that own the same slices do not sum.
class OfGroupsByThemselves final : public PartitionContext {
 public:
  explicit OfGroupsByThemselves(fakes::PartitionRank& rank) : rank_(rank) {}
  const std::vector<FlatParameter*>& flat_parameters() const override { return rank_.flat_parameters(); }
  Group& group(const std::string& name) override { return rank_.group(name); }
  Buffer& buffer(const BufferRequest& request) override { return rank_.buffer(request); }
  bool moves(Category category) const override { return rank_.moves(category); }
  StateStore& store() override { return rank_.store(); }
  SlotPool& slots() override { return rank_.slots(); }
  Device& device() override { return rank_.device(); }
  bool sums_replicas() const override { return false; }

 private:
  fakes::PartitionRank& rank_;
};

TEST_CASE("uncompressed communication is reported, of single ranks and groups of one") {
  const std::vector<std::string> nothing{"ranks exchange no weights and no gradients, so nothing is compressed"};
  const std::vector<std::string> no_weights{"each rank keeps all weights and sends none, so no weights are compressed"};
  const auto said = [](const std::string& shard_size, int ranks, bool by_themselves) {
    Variant variant{"hybrid", {{"shard_size", shard_size}, {"stage", "2"}, {"weights_on_wire", "int8"}}};
    variant = with(variant, "gradients_on_wire", "int8");
    fakes::PartitionRank rank(library_of(variant), variant.options, ranks, 0, fakes::odd_flat_parameters());
    OfGroupsByThemselves themselves(rank);
    fakes::LoadedPlugin<Partitioner> partitioner(library_of(variant), variant.options, 0, {{Axis::Data, ranks}});
    partitioner->attach(by_themselves ? static_cast<PartitionContext&>(themselves) : rank);
    return partitioner.context().logged();
  };
  CHECK(said("1", 1, false) == nothing);
  CHECK(said("1", 2, false) == no_weights);
  CHECK(said("1", 2, true) == nothing);
  CHECK(said("2", 4, false).empty());
  CHECK(said("2", 4, true).empty());
}

TEST_CASE("memory of compressed communication is counted: messages, exact parts, errors") {
  const std::int64_t int8 = flat_elements + flat_elements / 2048 * 4;
  const auto slot = [](std::int64_t bytes) { return (bytes + 511) / 512 * 512; };
  const auto held = [](const Counted& one, Category category) {
    return one.ledger.peak[static_cast<std::size_t>(category)][0];
  };
  const Counted exact = counted({"zero1", {}}, 4, 1);
  const Counted weights = counted(with({"zero1", {}}, "weights_on_wire", "int8"), 4, 1);
  CHECK(held(weights, Category::Parameter) ==
        held(exact, Category::Parameter) + flat_elements);  // fp32: 4 bytes, 4 ranks
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

TEST_CASE("compression that has no effect or excludes an option is refused") {
  for (const char* plugin : {"zero1", "zero2", "zero3", "hybrid"}) {
    const Variant plain{plugin, {}};
    CHECK(refusal(with(plain, "error_feedback", "true"), 2).find("no effect while gradients_on_wire is exact") !=
          std::string::npos);
    CHECK(refusal(with(with(plain, "error_feedback", "true"), "gradients_on_wire", "int4"), 2).empty());
    for (const auto& [option, value, without] :
         {std::tuple("error_beta", "0.5", "error_feedback"), std::tuple("error_reset", "7", "error_feedback"),
          std::tuple("wire_block_size", "64", "weights_on_wire or gradients_on_wire")}) {
      CAPTURE(option);
      CHECK_THAT(refusal(with(plain, option, value), 2),
                 Catch::Matchers::Contains(": " + std::string(option) + " is " + value));
      CHECK_THAT(refusal(with(plain, option, value), 2),
                 Catch::Matchers::Contains(std::string("it has no effect without ") + without +
                                           "; set that, or remove " + option));
    }
  }
  const Variant summed = with(with({"zero2", {}}, "reduce_scatter", "false"), "gradients_on_wire", "int8");
  CHECK(refusal(summed, 2).find("leave reduce_scatter out") != std::string::npos);
}
