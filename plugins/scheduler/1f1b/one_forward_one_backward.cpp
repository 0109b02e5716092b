// Scheduler 1f1b, one chunk per stage. With p stages and m micro-batches, stage r first computes min(p - 1 - r, m)
// forwards, then pairs of one forward and one backward while forwards are left, then the remaining backwards. Stage r
// holds the activations of at most min(p - r, m) micro-batches; if a forward takes F and a backward B, each stage idles
// for (p - 1)(F + B).
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/scheduler.hpp>
#include <strata/toolbox/placement.hpp>

#include <algorithm>

namespace {

using namespace strata;

STRATA_NO_OPTIONS(NoOptions)

class OneForwardOneBackward final : public Scheduler {
 public:
  OneForwardOneBackward(PluginContext&, const NoOptions&) {}

  Placement place(const std::vector<LayerCost>& layers, const PipelineShape& shape) const override {
    toolbox::require_one_chunk(shape);
    return toolbox::place_in_turn(layers, shape);
  }

  std::vector<ComputeAction> order(const PipelineShape& shape, int stage) const override {
    toolbox::require_one_chunk(shape);
    const int warm_up = std::min(shape.stages - 1 - stage, shape.micro_batches);
    std::vector<ComputeAction> order;
    int forward = 0;
    int backward = 0;
    while (forward < warm_up) order.push_back({ComputeKind::Forward, stage, forward++});
    while (forward < shape.micro_batches) {
      order.push_back({ComputeKind::Forward, stage, forward++});
      order.push_back({ComputeKind::Backward, stage, backward++});
    }
    while (backward < shape.micro_batches) order.push_back({ComputeKind::Backward, stage, backward++});
    return order;
  }

  std::optional<int> peak_live(const PipelineShape& shape, int stage) const override {
    return std::min(shape.stages - stage, shape.micro_batches);
  }
};

}  // namespace

STRATA_PLUGIN(OneForwardOneBackward, NoOptions)
