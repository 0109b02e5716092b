// GPipe's schedule: a stage computes the forward of every micro-batch, then the backward of every micro-batch. A
// scheduler defines order(), the compute actions of one stage. The core adds sends, receives, gathers and reductions,
// checks the order and draws errors; <strata/scheduler.hpp> is the contract.
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/scheduler.hpp>
#include <strata/toolbox/placement.hpp>

#include <vector>

namespace {

using namespace strata;

STRATA_NO_OPTIONS(NoOptions)

class AllForwardsFirst final : public Scheduler {
 public:
  AllForwardsFirst(PluginContext& /*context*/, const NoOptions& /*options*/) {}

  // One chunk of the model's layers per stage, with about equal numbers of parameters.
  Placement place(const std::vector<LayerCost>& layers, const PipelineShape& shape) const override {
    toolbox::require_one_chunk(shape);
    return toolbox::place_in_turn(layers, shape);
  }

  // Pure: every rank calls it for every stage and must get the same result. place() put chunk `stage` on this stage.
  // All micro-batches' activations are alive at once; a schedule with earlier backwards keeps fewer.
  std::vector<ComputeAction> order(const PipelineShape& shape, int stage) const override {
    toolbox::require_one_chunk(shape);
    std::vector<ComputeAction> order;
    for (const ComputeKind kind : {ComputeKind::Forward, ComputeKind::Backward})
      for (int micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch)
        order.push_back({kind, stage, micro_batch});
    return order;
  }
};

}  // namespace

STRATA_PLUGIN(AllForwardsFirst, NoOptions)
