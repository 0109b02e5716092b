// Scheduler zero_bubble_h1, after Qi et al. 2023, "Zero Bubble Pipeline Parallelism" (arXiv:2401.10241), section 2.2.
// As 1F1B, but a backward is split: F forward, I the gradient of the input, W that of the weights. The stage before
// waits only for I, so stage r puts off its first r W's to where it would idle. With p stages each stage idles for (p -
// 1)(F + I - W), a third of 1F1B's (p - 1)(F + I + W) where the three take equal times, and holds the activations of p
// micro-batches, as the first stage of 1F1B does.
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/scheduler.hpp>
#include <strata/toolbox/placement.hpp>

#include <algorithm>

namespace {

using namespace strata;

STRATA_NO_OPTIONS(NoOptions)

class ZeroBubbleH1 final : public Scheduler {
 public:
  ZeroBubbleH1(PluginContext&, const NoOptions&) {}

  Placement place(const std::vector<LayerCost>& layers, const PipelineShape& shape) const override {
    toolbox::require_one_chunk(shape);
    return toolbox::place_in_turn(layers, shape);
  }

  std::vector<ComputeAction> order(const PipelineShape& shape, int stage) const override {
    toolbox::require_one_chunk(shape);
    const int warm_up = std::min(shape.stages - 1 - stage, shape.micro_batches);
    std::vector<ComputeAction> order;
    int forward = 0, input = 0, weight = 0;
    while (forward < warm_up) order.push_back({ComputeKind::Forward, stage, forward++});
    while (input < shape.micro_batches) {
      if (forward < shape.micro_batches) order.push_back({ComputeKind::Forward, stage, forward++});
      order.push_back({ComputeKind::BackwardInput, stage, input++});
      if (input > stage) order.push_back({ComputeKind::BackwardWeight, stage, weight++});
    }
    while (weight < shape.micro_batches) order.push_back({ComputeKind::BackwardWeight, stage, weight++});
    return order;
  }

  std::optional<int> peak_live(const PipelineShape& shape, int /*stage*/) const override {
    return std::min(shape.stages, shape.micro_batches);
  }
};

}  // namespace

STRATA_PLUGIN(ZeroBubbleH1, NoOptions)
