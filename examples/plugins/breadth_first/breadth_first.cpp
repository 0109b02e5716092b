// A schedule: every stage computes all its forwards, then all its backwards, the newest micro-batch first. The last
// stage starts its backwards with the activations it has just made; all micro-batches are alive at once, as in GPipe.
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/scheduler.hpp>
#include <strata/toolbox/placement.hpp>

#include <vector>

namespace {

using namespace strata;

STRATA_NO_OPTIONS(NoOptions)

class BreadthFirst final : public Scheduler {
 public:
  BreadthFirst(PluginContext&, const NoOptions&) {}

  Placement place(const std::vector<LayerCost>& layers, const PipelineShape& shape) const override {
    toolbox::require_one_chunk(shape);
    return toolbox::place_in_turn(layers, shape);
  }

  std::vector<ComputeAction> order(const PipelineShape& shape, int stage) const override {
    std::vector<ComputeAction> order;
    for (int micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch)
      order.push_back({ComputeKind::Forward, stage, micro_batch});
    for (int micro_batch = shape.micro_batches; micro_batch-- > 0;)
      order.push_back({ComputeKind::Backward, stage, micro_batch});
    return order;
  }
};

}  // namespace

STRATA_PLUGIN(BreadthFirst, NoOptions)
