// Scheduler interleaved_1f1b: 1F1B with v chunks per stage, as Megatron-LM orders it (arXiv:2104.04473, section 2.2).
// Of p stages, stage c mod p holds chunk c. A stage takes the m micro-batches in groups: a group through its first
// chunk, then through its second, and so on, then the next group. Stage r computes min(2(p - 1 - r) + (v - 1) group, v
// m) forwards, then pairs of one forward and one backward, then the remaining backwards. If a stage's chunks together
// take F forward and B backward, it idles for (p - 1)(F + B) / v.
#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/scheduler.hpp>
#include <strata/toolbox/placement.hpp>

#include <algorithm>
#include <string>

namespace {

using namespace strata;

#define INTERLEAVED_OPTIONS(OPTION)                                                                                  \
  OPTION(integer, micro_batch_group, 0, "min=0,max=1000000", "micro-batches",                                        \
         "Micro-batches that a stage runs through one chunk before its next chunk. Each group, including the last, " \
         "has at least as many micro-batches as there are stages; 0: the minimum.")
STRATA_OPTIONS(InterleavedOptions, INTERLEAVED_OPTIONS)

class Interleaved final : public Scheduler {
 public:
  Interleaved(PluginContext&, const InterleavedOptions& options) : option_(options.micro_batch_group) {}

  int chunks_per_stage(int stages, int layers) const override { return std::clamp(layers / stages, 1, 2); }

  Placement place(const std::vector<LayerCost>& layers, const PipelineShape& shape) const override {
    return toolbox::place_in_turn(layers, shape);
  }

  std::vector<ComputeAction> order(const PipelineShape& shape, int stage) const override {
    const int passes = shape.chunks_per_stage * shape.micro_batches, warm_up = warm_up_of(shape, stage);
    std::vector<ComputeAction> order;
    for (int forward = 0, backward = 0; backward < passes;) {
      if (forward < passes) order.push_back(action(ComputeKind::Forward, forward++, shape, stage));
      if (forward > warm_up || forward == passes)
        order.push_back(action(ComputeKind::Backward, backward++, shape, stage));
    }
    return order;
  }

  std::optional<int> peak_live(const PipelineShape& shape, int stage) const override {
    return std::min(warm_up_of(shape, stage) + 1, shape.chunks_per_stage * shape.micro_batches);
  }

 private:
  int warm_up_of(const PipelineShape& shape, int stage) const {
    return std::min(2 * (shape.stages - 1 - stage) + (shape.chunks_per_stage - 1) * group_of(shape),
                    shape.chunks_per_stage * shape.micro_batches);
  }

  int group_of(const PipelineShape& shape) const {
    const auto allowed = [&](int group) {
      const int last = shape.micro_batches % group;
      return group >= shape.stages && group <= shape.micro_batches && (last == 0 || last >= shape.stages);
    };
    int group = option_ == 0 ? shape.stages : static_cast<int>(option_);
    while (option_ == 0 && group < shape.micro_batches && !allowed(group)) ++group;
    if (allowed(group)) return group;
    const std::string stages = std::to_string(shape.stages), all = std::to_string(shape.micro_batches);
    throw UserError(
        "each group of micro-batches, including the last, needs at least {}, the number of stages; {} micro-batches "
        "per step (train.accumulation) cannot be split into such groups of {} (micro_batch_group); raise "
        "train.accumulation{}",
        stages, all, group, option_ == 0 ? ", or use scheduler 1f1b" : ", or leave micro_batch_group out");
  }

  // A stage's nth forward, or backward: by group, in it by chunk (in backward the last first), in it by micro-batch.
  ComputeAction action(ComputeKind kind, int number, const PipelineShape& shape, int stage) const {
    const int group = group_of(shape), chunks = shape.chunks_per_stage;
    const int first = number / (group * chunks) * group, size = std::min(group, shape.micro_batches - first);
    const int turn = (number - first * chunks) / size;
    const int chunk = kind == ComputeKind::Forward ? turn : chunks - 1 - turn;
    return {kind, chunk * shape.stages + stage, first + (number - first * chunks) % size};
  }

  std::int64_t option_;
};

}  // namespace

STRATA_PLUGIN(Interleaved, InterleavedOptions, INTERLEAVED_OPTIONS)
