// Scheduler gpipe, after Huang et al. 2019, "GPipe" (arXiv:1811.06965): all forwards, then all backwards. With p stages
// whose forward takes F and backward B, each idles for (p - 1)(F + B), as with 1f1b, and holds the activations of all
// micro-batches, where 1f1b holds those of at most p. Backwards go in the order of the forwards.
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/scheduler.hpp>
#include <strata/toolbox/placement.hpp>

namespace {

using namespace strata;

STRATA_NO_OPTIONS(NoOptions)

class GPipe final : public Scheduler {
 public:
  GPipe(PluginContext&, const NoOptions&) {}

  Placement place(const std::vector<LayerCost>& layers, const PipelineShape& shape) const override {
    toolbox::require_one_chunk(shape);
    return toolbox::place_in_turn(layers, shape);
  }

  std::vector<ComputeAction> order(const PipelineShape& shape, int stage) const override {
    toolbox::require_one_chunk(shape);
    std::vector<ComputeAction> order;
    for (const ComputeKind kind : {ComputeKind::Forward, ComputeKind::Backward})
      for (int micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch)
        order.push_back({kind, stage, micro_batch});
    return order;
  }

  std::optional<int> peak_live(const PipelineShape& shape, int /*stage*/) const override { return shape.micro_batches; }
};

}  // namespace

STRATA_PLUGIN(GPipe, NoOptions)
