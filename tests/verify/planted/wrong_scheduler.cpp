// 1F1B with a defect that one micro-batch does not show: a run of one is right with each of them.
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>
#include <strata/scheduler.hpp>
#include <strata/toolbox/placement.hpp>

#include <algorithm>

namespace {

using namespace strata;

#define WRONG_SCHEDULER_OPTIONS(OPTION)                                                                       \
  OPTION(text, defect, "none", "one_of=none|reversed_warm_up|forgets_backward|holds_more|backward_first", "", \
         "Which one.")
STRATA_OPTIONS(WrongSchedulerOptions, WRONG_SCHEDULER_OPTIONS)

class WrongScheduler final : public Scheduler {
 public:
  WrongScheduler(PluginContext&, const WrongSchedulerOptions& options) : defect_(options.defect) {}

  Placement place(const std::vector<LayerCost>& layers, const PipelineShape& shape) const override {
    toolbox::require_one_chunk(shape);
    return toolbox::place_in_turn(layers, shape);
  }

  std::vector<ComputeAction> order(const PipelineShape& shape, int stage) const override {
    const int place = defect_ == "reversed_warm_up" ? shape.stages - 1 - stage : stage;
    const int warm_up = std::min(shape.stages - 1 - place, shape.micro_batches - 1);
    std::vector<ComputeAction> order;
    int forward = 0, backward = 0;
    while (forward < warm_up) order.push_back({ComputeKind::Forward, stage, forward++});
    while (forward < shape.micro_batches) {
      order.push_back({ComputeKind::Forward, stage, forward++});
      order.push_back({ComputeKind::Backward, stage, backward++});
    }
    while (backward < shape.micro_batches) order.push_back({ComputeKind::Backward, stage, backward++});
    if (shape.micro_batches == 1) return order;
    if (defect_ == "forgets_backward")
      std::erase_if(order, [](const ComputeAction& action) {
        return action.kind == ComputeKind::Backward && action.micro_batch == 1;
      });
    if (defect_ == "backward_first") std::swap(order.front(), order.back());
    return order;
  }

  std::optional<int> peak_live(const PipelineShape& shape, int stage) const override {
    return defect_ == "holds_more" ? 1 : std::min(shape.stages - stage, shape.micro_batches);
  }

 private:
  std::string defect_;
};

}  // namespace

STRATA_PLUGIN(WrongScheduler, WrongSchedulerOptions, WRONG_SCHEDULER_OPTIONS)
