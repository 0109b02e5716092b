// Precision fp8 in runs: delayed scales are those of the whole batch on every layout, and a checkpoint carries them to
// any other.
#include <ATen/ops/equal.h>
#include <strata/fakes/saved_state.hpp>
#include <strata/options.hpp>
#include <strata/toolbox/eight_bits.hpp>

#include <map>
#include <tuple>

#include "ranks.hpp"

using namespace strata;

namespace {

STRATA_NO_OPTIONS(SixLayersOptions)

struct SixLayers final : SequentialModel {
  SixLayers(PluginContext&, const SixLayersOptions&) : SequentialModel(::vocabulary) {
    add<EmbeddingLayer>("embedding", ::vocabulary, width);
    for (int layer = 0; layer < 4; ++layer) add<HiddenLayer>("hidden" + std::to_string(layer), width, width);
    add<HeadLayer>("head", ::vocabulary, width);
  }
};

struct EightBitLayout {
  int ranks;
  std::vector<std::string> settings;
};

const std::vector<EightBitLayout> eight_bit_layouts{
    {1, {}},
    {1, {"activations.checkpoint=all"}},
    {2, {"partitioner.plugin=ddp"}},
    {3, {"partitioner.plugin=zero3", "activations.checkpoint=all"}},
    {2, {"parallel.pipeline=2", "scheduler.plugin=1f1b"}},
    {4, {"parallel.pipeline=2", "scheduler.plugin=zero_bubble_h1", "partitioner.plugin=zero1"}}};

struct EightBitRun {
  std::vector<double> losses;
  std::vector<at::Tensor> maxima;  // by step
  // The policy's state by rank: before its first step, when the checkpoint was saved, after the last step.
  std::map<int, fakes::SavedState> begin, at_save, end;
  std::string saved;  // the checkpoint of three steps
};

// Six steps, from a checkpoint of three if one is named.
EightBitRun trained(const Config& config, const EightBitLayout& layout, bool saves = false,
                    const std::string& from = "") {
  std::vector<std::string> settings{config.data(),
                                    "model.plugin=six",
                                    "precision.plugin=fp8",
                                    "precision.fp8.scaling=delayed",
                                    "precision.fp8.history=2",
                                    "train.global_batch=12",
                                    "train.micro_batch=2",
                                    "train.accumulation=auto",
                                    "train.steps=6",
                                    "learning_rate.base=0.05"};
  settings.insert(settings.end(), layout.settings.begin(), layout.settings.end());
  if (saves) settings.push_back("checkpoint.path=" + (config / "checkpoints"));
  EightBitRun result;
  std::mutex mutex;
  on_engines(layout.ranks, config.file(), settings,
             [&](const LocalRank& rank) {
               if (!from.empty()) rank.run.resume(from);
               PrecisionPolicy& policy = *rank.run.session().stage().plugins.precision;
               const auto state = [&] {
                 fakes::SavedState saved;
                 policy.save(saved);
                 return saved;
               };
               const fakes::SavedState begin = state();
               fakes::SavedState at_save;
               std::vector<double> losses;
               std::vector<at::Tensor> maxima;
               std::string saved;
               while (rank.run.steps_done() < 6) {
                 losses.push_back(rank.run.step().outcome.loss);
                 maxima.push_back(policy.maxima().clone());
                 if (!saves || rank.run.steps_done() != 3) continue;
                 saved = rank.engine.save_checkpoint();
                 at_save = state();
               }
               const std::lock_guard lock(mutex);
               result.begin[rank.engine.rank()] = begin;
               result.at_save[rank.engine.rank()] = at_save;
               result.end[rank.engine.rank()] = state();
               if (rank.engine.rank() == 0)
                 std::tie(result.losses, result.maxima, result.saved) = std::tuple(losses, maxima, saved);
             },
             {program_plugin<Model, SixLayers, SixLayersOptions>("six", {Capability::SplittableBackward})});
  return result;
}

void check_equal_on_ranks(const std::map<int, fakes::SavedState>& states) {
  for (const auto& [rank, state] : states) CHECK((state == states.at(0)));
}

}  // namespace

TEST_CASE("delayed scales are equal on all layouts and ranks") {
  const Config config;
  const EightBitRun alone = trained(config, eight_bit_layouts[0]);
  REQUIRE(alone.maxima.size() == 6);
  REQUIRE(alone.maxima[0].numel() == 6 * 3);
  CHECK(alone.maxima[0].gt(0.0F).sum().item<std::int64_t>() == 4 * 3);  // not of embedding and head
  // Layouts sum in other orders, and bf16 rounds what they sum. A magnitude that some roundings could bring over the
  // border of a power of two may have another one on another layout; it is left out, and most are not so near.
  constexpr double roundings = 8 * 0x1p-8;
  const auto far = [&](const at::Tensor& maxima) {
    return power_of_two(maxima * (1.0 - roundings), e4m3).eq(power_of_two(maxima * (1.0 + roundings), e4m3));
  };
  for (const at::Tensor& maxima : alone.maxima)
    REQUIRE(far(maxima).sum().item<std::int64_t>() * 4 >= maxima.numel() * 3);
  for (const EightBitLayout& layout : eight_bit_layouts) {
    CAPTURE(layout.ranks, layout.settings);
    const EightBitRun run = trained(config, layout);
    check_equal_on_ranks(run.end);
    for (std::size_t step = 0; step < 6; ++step) {
      const at::Tensor known = far(alone.maxima[step]);
      CHECK(at::equal(power_of_two(run.maxima[step], e4m3).masked_select(known),
                      power_of_two(alone.maxima[step], e4m3).masked_select(known)));
    }
    if (layout.ranks == 1) CHECK((run.losses == alone.losses));  // layers that are computed again measure nothing else
  }
}

TEST_CASE("a checkpoint holds the magnitudes of earlier steps for any layout") {
  const Config config;
  const EightBitRun whole = trained(config, eight_bit_layouts[2], true);
  CHECK_FALSE((whole.at_save.at(0) == whole.begin.at(0)));
  for (const EightBitLayout& layout : eight_bit_layouts) {
    CAPTURE(layout.ranks, layout.settings);
    const bool same = &layout == &eight_bit_layouts[2];
    const EightBitRun resumed = trained(config, layout, false, whole.saved);
    check_equal_on_ranks(resumed.begin);
    CHECK((resumed.begin.at(0) == whole.at_save.at(0)));  // bit by bit, whatever the layout
    REQUIRE(resumed.losses.size() == 3);
    if (!same) continue;
    for (std::size_t step = 0; step < 3; ++step) CHECK(resumed.losses[step] == whole.losses[3 + step]);
    CHECK((resumed.end == whole.end));
  }
}
