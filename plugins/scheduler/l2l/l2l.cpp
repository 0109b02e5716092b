// Scheduler l2l, after Pudipeddi et al. 2020, "Training Large Neural Networks with Constant Memory using a New
// Execution Algorithm" (arXiv:2002.05645): layer to layer. All micro-batches pass a layer before the next one begins,
// forward and backward, so that a layer's parameters are fetched twice a step for any number of micro-batches. A
// chunk is a layer where there is one stage. Holds the activations of all micro-batches; recompute them
// (activations.checkpoint: all) to hold their inputs only. With several stages it is GPipe with as many chunks as the
// layers allow.
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/scheduler.hpp>
#include <strata/toolbox/placement.hpp>

#include <algorithm>

namespace {

using namespace strata;

STRATA_NO_OPTIONS(NoOptions)

class LayerToLayer final : public Scheduler {
 public:
  LayerToLayer(PluginContext&, const NoOptions&) {}

  int chunks_per_stage(int stages, int layers) const override { return std::max(1, layers / stages); }

  Placement place(const std::vector<LayerCost>& layers, const PipelineShape& shape) const override {
    return toolbox::place_in_turn(layers, shape);
  }

  std::vector<ComputeAction> order(const PipelineShape& shape, int stage) const override {
    std::vector<ComputeAction> order;
    const auto pass = [&](ComputeKind kind, int chunk) {
      for (int micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch)
        order.push_back({kind, chunk, micro_batch});
    };
    for (int chunk = stage; chunk < shape.chunks(); chunk += shape.stages) pass(ComputeKind::Forward, chunk);
    for (int chunk = shape.chunks() - shape.stages + stage; chunk >= 0; chunk -= shape.stages)
      pass(ComputeKind::Backward, chunk);
    return order;
  }

  std::optional<int> peak_live(const PipelineShape& shape, int /*stage*/) const override {
    return shape.chunks_per_stage * shape.micro_batches;
  }
};

}  // namespace

STRATA_PLUGIN(LayerToLayer, NoOptions)
