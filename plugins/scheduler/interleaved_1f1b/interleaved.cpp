// Scheduler interleaved_1f1b: 1F1B with several chunks per stage, after Megatron-LM (Narayanan et al. 2021,
// arXiv:2104.04473, section 2.2). With p stages, v chunks per stage and m micro-batches, chunk c lies on stage c mod p.
// A stage takes micro-batches in groups: the first group through its first chunk, then through its second, and so on,
// then the next group. Stage r computes min(2(p - 1 - r) + (v - 1) group, v m) forwards, then pairs of one forward and
// one backward, then the remaining backwards. If all of a stage's chunks together take F forward and B backward, each
// stage idles for (p - 1)(F + B) / v. It holds the activations of at most one chunk more than it first computes
// forward.
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
  OPTION(                                                                                                            \
      integer, micro_batch_group, 0, "min=0,max=1000000", "micro-batches",                                           \
      "Micro-batches that pass a chunk before the stage goes on to its next chunk; 0: the fewest that are allowed. " \
      "At least the number of stages; the last group may be smaller, but not smaller than the number of stages.")
STRATA_OPTIONS(InterleavedOptions, INTERLEAVED_OPTIONS)

class Interleaved final : public Scheduler {
 public:
  Interleaved(PluginContext&, const InterleavedOptions& options)
      : option_(static_cast<int>(options.micro_batch_group)) {}

  Placement place(const std::vector<LayerCost>& layers, const PipelineShape& shape) const override {
    return toolbox::place_in_turn(layers, shape);
  }

  std::vector<ComputeAction> order(const PipelineShape& shape, int stage) const override {
    const int group = group_of(shape);
    const int passes = shape.chunks_per_stage * shape.micro_batches;
    const int warm_up = warm_up_of(shape, stage, group);
    std::vector<ComputeAction> order;
    int backward = 0;
    for (int forward = 0; forward < passes; ++forward) {
      order.push_back(action(ComputeKind::Forward, forward, shape, stage, group));
      if (forward >= warm_up) order.push_back(action(ComputeKind::Backward, backward++, shape, stage, group));
    }
    while (backward < passes) order.push_back(action(ComputeKind::Backward, backward++, shape, stage, group));
    return order;
  }

  std::optional<int> peak_live(const PipelineShape& shape, int stage) const override {
    return std::min(warm_up_of(shape, stage, group_of(shape)) + 1, shape.chunks_per_stage * shape.micro_batches);
  }

 private:
  static int warm_up_of(const PipelineShape& shape, int stage, int group) {
    return std::min(2 * (shape.stages - 1 - stage) + (shape.chunks_per_stage - 1) * group,
                    shape.chunks_per_stage * shape.micro_batches);
  }

  static bool allowed(int group, const PipelineShape& shape) {
    const int last = shape.micro_batches % group;
    return group >= shape.stages && group <= shape.micro_batches && (last == 0 || last >= shape.stages);
  }

  int group_of(const PipelineShape& shape) const {
    const std::string numbers = std::to_string(shape.stages) + " stages and " + std::to_string(shape.micro_batches) +
                                " micro-batches per step (train.accumulation)";
    if (shape.micro_batches < shape.stages)
      throw UserError("interleaved 1F1B needs at least as many micro-batches as stages, and there are " + numbers +
                      "; raise train.accumulation, or use scheduler 1f1b");
    int group = option_ == 0 ? shape.stages : option_;
    if (option_ == 0)
      while (!allowed(group, shape)) ++group;
    if (allowed(group, shape)) return group;
    throw UserError("micro_batch_group is " + std::to_string(group) + " with " + numbers +
                    "; it must be from the number of stages to that of micro-batches, and the last group must not be "
                    "smaller than the number of stages; 0 takes the fewest that are allowed");
  }

  // The nth forward of a stage, or the nth backward: groups of micro-batches, in each the stage's chunks in turn (the
  // last first in backward), in each chunk the group's micro-batches.
  static ComputeAction action(ComputeKind kind, int number, const PipelineShape& shape, int stage, int group) {
    const int first = number / (group * shape.chunks_per_stage) * group;  // micro-batch of this group
    const int size = std::min(group, shape.micro_batches - first);
    const int within = number - first * shape.chunks_per_stage;
    const int turn = within / size;
    const int nth_chunk = kind == ComputeKind::Forward ? turn : shape.chunks_per_stage - 1 - turn;
    return {kind, nth_chunk * shape.stages + stage, first + within % size};
  }

  int option_;
};

}  // namespace

STRATA_PLUGIN(Interleaved, InterleavedOptions, INTERLEAVED_OPTIONS)
