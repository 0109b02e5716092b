#include "tools/schedule/schedule.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include "program/lower.hpp"
#include "text/formatted.hpp"
#include "tools/schedule/drawing.hpp"

namespace strata::schedule {

namespace {

// Limits the picture to what can be read.
void require_drawable(const PipelineShape& shape) {
  constexpr std::int64_t most_actions = 100'000;
  std::int64_t actions = 1;
  for (const int factor : {shape.stages, shape.chunks_per_stage, shape.micro_batches}) {
    if (factor < 1 || factor > most_actions / actions) {
      throw UserError(
          "a schedule of {} stages x {} chunks x {} micro-batches cannot be drawn: each must be at least 1 and their "
          "product at most {}",
          shape.stages, shape.chunks_per_stage, shape.micro_batches, most_actions);
    }
    actions *= factor;
  }
}

ScheduleDrawing draw(const ShownScheduler& shown, const PipelineShape& shape, const program::ChunkCost& cost) {
  require_drawable(shape);
  const LayerCost layer{1, cost.forward, cost.backward_input, cost.backward_weight, 1, 1};
  const std::vector<LayerCost> layers(static_cast<std::size_t>(shape.chunks()), layer);
  const program::StepPlan plan = program::plan_step("scheduler/" + shown.name, shown.scheduler, shape, layers);
  const auto costs = program::uniform_costs(shape.chunks(), cost);
  return {shown.name, shape, cost, program::simulate(plan.orders, plan.placement, costs),
          program::look_ahead(plan.orders, plan.placement, [&](const ComputeAction& action) {
            return cost.of(action.kind);
          }).period};
}

// Times are in units of 1 / `parts` of the given ones; passes are counted in whole stages.
void write_comparison(const std::vector<ScheduleDrawing>& drawings, std::int64_t parts, std::ostream& out) {
  out << text::formatted("%-18s %7s %10s %9s %12s %10s %11s %10s\n", "scheduler", "chunks", "makespan", "bubble",
                         "speculative", "idle", "inner idle", "peak live");
  for (const ScheduleDrawing& drawing : drawings) {
    const program::Timeline& timeline = drawing.timeline;
    const auto time = [&](std::int64_t parts_of_time) {
      return text::formatted("%.4g", static_cast<double>(parts_of_time) / static_cast<double>(parts));
    };
    const std::int64_t least_busy = *std::ranges::min_element(timeline.busy);
    const double peak = static_cast<double>(*std::ranges::max_element(timeline.peak_live)) /
                        static_cast<double>(drawing.shape.chunks_per_stage);
    out << text::formatted("%-18s %7d %10s %7.1f %% %10.1f %% %10s %11s %10.4g\n", drawing.scheduler.c_str(),
                           drawing.shape.chunks_per_stage, time(timeline.makespan).c_str(), 100.0 * timeline.bubble(),
                           100.0 * drawing.speculative_bubble(), time(timeline.makespan - least_busy).c_str(),
                           time(*std::ranges::max_element(timeline.inner_idle)).c_str(), peak);
  }
  out << "times: in the unit that --forward and the others have, which are of a whole stage\n"
         "speculative: the bubble of a step after another with step_policy: speculative\n"
         "idle, inner idle, peak live: of the stage that has most; peak live in passes through a whole stage\n";
}

}  // namespace

int schedule_show(const std::vector<ShownScheduler>& schedulers, int stages, int micro_batches,
                  const program::ChunkCost& cost, const std::string& format, std::ostream& out) {
  std::int64_t parts = 1;
  if (schedulers.size() > 1)
    for (const ShownScheduler& shown : schedulers)
      parts = std::lcm(parts, static_cast<std::int64_t>(shown.chunks_per_stage));
  std::vector<ScheduleDrawing> drawings;
  for (const ShownScheduler& shown : schedulers) {
    const std::int64_t share = schedulers.size() == 1 ? 1 : parts / shown.chunks_per_stage;  // of a stage's cost
    drawings.push_back(draw(
        shown, {stages, shown.chunks_per_stage, micro_batches},
        {cost.forward * share, cost.backward_input * share, cost.backward_weight * share, cost.communication * parts}));
  }
  if (format == "svg") {
    write_schedules_svg(drawings, out);
  } else if (format == "trace") {
    write_schedules_trace(drawings, out);
  } else if (format == "json") {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const ScheduleDrawing& drawing : drawings) all.push_back(schedule_json(drawing));
    out << (drawings.size() == 1 ? all.front() : all).dump(1) << "\n";
  } else {
    if (parts > 1) out << "times are in 1/" << parts << " of the unit given; in the table, in the unit itself\n\n";
    for (const ScheduleDrawing& drawing : drawings) {
      write_schedule_text(drawing, out);
      if (drawings.size() > 1) out << "\n";
    }
    if (drawings.size() > 1) write_comparison(drawings, parts, out);
  }
  return 0;
}

}  // namespace strata::schedule
