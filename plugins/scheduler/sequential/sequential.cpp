// Scheduler sequential: one micro-batch at a time, forward through all chunks, then backward. Needs the least memory.
// Only one stage computes at any time: the reference for faster schedules.
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/scheduler.hpp>
#include <strata/toolbox/placement.hpp>

namespace {

using namespace strata;

STRATA_NO_OPTIONS(NoOptions)

class Sequential final : public Scheduler {
 public:
  Sequential(PluginContext&, const NoOptions&) {}

  Placement place(const std::vector<LayerCost>& layers, const PipelineShape& shape) const override {
    return toolbox::place_in_turn(layers, shape);
  }

  std::vector<ComputeAction> order(const PipelineShape& shape, int stage) const override {
    std::vector<ComputeAction> order;
    for (int micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch) {
      for (int chunk = stage; chunk < shape.chunks(); chunk += shape.stages) {
        order.push_back({ComputeKind::Forward, chunk, micro_batch});
      }
      for (int chunk = shape.chunks() - shape.stages + stage; chunk >= 0; chunk -= shape.stages) {
        order.push_back({ComputeKind::Backward, chunk, micro_batch});
      }
    }
    return order;
  }

  std::optional<int> peak_live(const PipelineShape& shape, int /*stage*/) const override {
    return shape.chunks_per_stage;
  }
};

}  // namespace

STRATA_PLUGIN(Sequential, NoOptions)
