// GPipe's schedule: a stage computes the forward of every micro-batch, then the backward of every micro-batch. What
// decides a schedule is order(): the compute actions of one stage. Sends, receives, gathers and reductions are written
// by the core, which also checks the order and draws what is wrong with it; <strata/scheduler.hpp> is the contract.
#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/scheduler.hpp>
#include <strata/toolbox/placement.hpp>

#include <string>
#include <vector>

namespace {

using namespace strata;

STRATA_NO_OPTIONS(NoOptions)

class AllForwardsFirst final : public Scheduler {
 public:
  AllForwardsFirst(PluginContext& /*context*/, const NoOptions& /*options*/) {}

  // One chunk of the model's layers on each stage, cut so that stages hold about as many parameters.
  Placement place(const std::vector<LayerCost>& layers, const PipelineShape& shape) const override {
    require_one_chunk(shape);
    return toolbox::place_in_turn(layers, shape);
  }

  // Pure: every rank asks for the order of every stage, and must get the same. Chunk `stage` is the one that place()
  // put there. All micro-batches are alive at once; one that computes backwards earlier keeps fewer.
  std::vector<ComputeAction> order(const PipelineShape& shape, int stage) const override {
    require_one_chunk(shape);
    std::vector<ComputeAction> order;
    for (const ComputeKind kind : {ComputeKind::Forward, ComputeKind::Backward})
      for (int micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch)
        order.push_back({kind, stage, micro_batch});
    return order;
  }

 private:
  // What a schedule cannot do is refused, with what was asked for and what to do.
  static void require_one_chunk(const PipelineShape& shape) {
    if (shape.chunks_per_stage == 1) return;
    throw UserError("this schedule runs one chunk per stage, but there are " + std::to_string(shape.chunks_per_stage) +
                    "; choose another scheduler");
  }
};

}  // namespace

STRATA_PLUGIN(AllForwardsFirst, NoOptions)
