#include "tools/commands/schedule_command.hpp"

#include <strata/error.hpp>

#include "program/lower.hpp"
#include "tools/drawing/drawing.hpp"

namespace strata::cli {

namespace {

// Limits the numbers so that nothing overflows and the picture stays readable.
void require_drawable(const PipelineShape& shape, const runtime::ChunkCost& cost) {
  constexpr std::int64_t most_actions = 100'000;
  constexpr std::int64_t largest_cost = 1'000'000'000;
  std::int64_t actions = 1;
  for (const int factor : {shape.stages, shape.chunks_per_stage, shape.micro_batches}) {
    if (factor < 1 || factor > most_actions / actions) {
      throw UserError("a schedule of " + std::to_string(shape.stages) + " stages x " +
                      std::to_string(shape.chunks_per_stage) + " chunks x " + std::to_string(shape.micro_batches) +
                      " micro-batches cannot be drawn: each must be at least 1 and their product at most " +
                      std::to_string(most_actions));
    }
    actions *= factor;
  }
  for (const std::int64_t time : {cost.forward, cost.backward_input, cost.backward_weight, cost.communication}) {
    if (time < 0 || time > largest_cost) {
      throw UserError("a cost is " + std::to_string(time) + "; it must be from 0 to " + std::to_string(largest_cost));
    }
  }
}

}  // namespace

int schedule_show(const std::string& name, const Scheduler& scheduler, const PipelineShape& shape,
                  const runtime::ChunkCost& cost, ScheduleFormat format, std::ostream& out) {
  require_drawable(shape, cost);
  const LayerCost layer{1, cost.forward, cost.backward_input, cost.backward_weight, 1};
  const std::vector<LayerCost> layers(static_cast<std::size_t>(shape.chunks()), layer);
  const runtime::StepPlan plan = runtime::plan_step("scheduler/" + name, scheduler, shape, layers);
  const auto costs = runtime::uniform_costs(shape.chunks(), cost);
  const runtime::ScheduleDrawing drawing{name, shape, cost, runtime::simulate(plan.orders, plan.placement, costs)};
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
