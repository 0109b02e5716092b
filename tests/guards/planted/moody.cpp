// All forwards, then all backwards; a process of odd rank takes the backwards in another order. Both are right.
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/scheduler.hpp>
#include <strata/toolbox/placement.hpp>

namespace {

using namespace strata;

STRATA_NO_OPTIONS(MoodyOptions)

class Moody final : public Scheduler {
 public:
  Moody(PluginContext& context, const MoodyOptions& /*options*/) : is_odd_(context.rank() % 2 == 1) {}
  Placement place(const std::vector<LayerCost>& layers, const PipelineShape& shape) const override {
    return toolbox::place_in_turn(layers, shape);
  }
  std::vector<ComputeAction> order(const PipelineShape& shape, int stage) const override {
    std::vector<ComputeAction> order;
    const int count = shape.micro_batches;
    for (int i = 0; i < count; ++i) order.push_back({ComputeKind::Forward, stage, i});
    for (int i = 0; i < count; ++i) order.push_back({ComputeKind::Backward, stage, is_odd_ ? count - 1 - i : i});
    return order;
  }

 private:
  bool is_odd_;
};

}  // namespace

STRATA_PLUGIN(Moody, MoodyOptions)
