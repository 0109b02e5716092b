#include "cli/schedule_command.hpp"

#include "runtime/program/drawing.hpp"
#include "runtime/program/lower.hpp"

namespace strata::cli {

int schedule_show(const std::string& name, const Scheduler& scheduler, const PipelineShape& shape,
                  const runtime::ChunkCost& cost, ScheduleFormat format, std::ostream& out) {
  const LayerCost layer{1, cost.forward, cost.of(ComputeKind::Backward), 1};
  const std::vector<LayerCost> layers(static_cast<std::size_t>(std::max(shape.chunks(), 0)), layer);
  const runtime::StepPlan plan = runtime::plan_step("scheduler/" + name, scheduler, shape, layers);
  const runtime::ScheduleDrawing drawing{
      name, shape, cost, runtime::simulate(plan.orders, plan.placement, runtime::uniform_costs(shape.chunks(), cost))};
  switch (format) {
    case ScheduleFormat::Text:
      runtime::write_schedule_text(drawing, out);
      break;
    case ScheduleFormat::Svg:
      runtime::write_schedule_svg(drawing, out);
      break;
    case ScheduleFormat::Json:
      runtime::write_schedule_json(drawing, out);
      break;
  }
  return 0;
}

}  // namespace strata::cli
