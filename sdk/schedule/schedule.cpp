#include "schedule/schedule.hpp"

#include <strata/error.hpp>

#include <string>
#include <vector>

#include "program/lower.hpp"
#include "schedule/drawing.hpp"

namespace strata::cli {

namespace {

// Limits the picture to what can be read.
void require_drawable(const PipelineShape& shape) {
  constexpr std::int64_t most_actions = 100'000;
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
}

}  // namespace

int schedule_show(const std::string& name, const Scheduler& scheduler, const PipelineShape& shape,
                  const runtime::ChunkCost& cost, const std::string& format, std::ostream& out) {
  require_drawable(shape);
  const LayerCost layer{1, cost.forward, cost.backward_input, cost.backward_weight, 1};
  const std::vector<LayerCost> layers(static_cast<std::size_t>(shape.chunks()), layer);
  const runtime::StepPlan plan = runtime::plan_step("scheduler/" + name, scheduler, shape, layers);
  const auto costs = runtime::uniform_costs(shape.chunks(), cost);
  const runtime::ScheduleDrawing drawing{name, shape, cost, runtime::simulate(plan.orders, plan.placement, costs)};
  const auto write = format == "svg"    ? runtime::write_schedule_svg
                     : format == "json" ? runtime::write_schedule_json
                                        : runtime::write_schedule_text;
  write(drawing, out);
  return 0;
}

}  // namespace strata::cli
