#include "tools/schedule/run_schedule.hpp"

#include <strata/format.hpp>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "text/formatted.hpp"
#include "text/size.hpp"
#include "tools/schedule/drawing.hpp"

namespace strata::schedule {

namespace {

using program::ChunkCost;
using program::Timeline;

std::vector<ChunkCost> costs_of(const program::StepPlan& plan) {
  std::vector<ChunkCost> costs;
  for (const LayerCost& chunk : plan.shape.chunk_costs)
    costs.push_back({chunk.forward_time, chunk.backward_input_time, chunk.backward_weight_time, 0});
  return costs;
}

// The most bytes of activations that the stage holds at once.
std::int64_t activation_bytes(const program::StepPlan& plan, const std::vector<program::TimedAction>& actions) {
  std::int64_t held = 0, most = 0;
  for (const program::TimedAction& timed : actions) {
    const std::int64_t bytes = plan.shape.chunk_costs[static_cast<std::size_t>(timed.action.chunk)].activation_bytes;
    if (timed.action.kind == ComputeKind::Forward) most = std::max(most, held += bytes);
    if (timed.action.kind == ComputeKind::Backward || timed.action.kind == ComputeKind::BackwardWeight) held -= bytes;
  }
  return most;
}

std::string layers_of(const program::StepPlan& plan, std::size_t stage) {
  std::string text;
  for (std::size_t chunk = 0; chunk < plan.placement.stage_of_chunk.size(); ++chunk) {
    if (plan.placement.stage_of_chunk[chunk] != static_cast<int>(stage)) continue;
    const auto [begin, end] = plan.placement.layers_of_chunk[chunk];
    text += (text.empty() ? "" : " ") + std::to_string(begin);
    if (end - begin > 1) text += format("-{}", end - 1);
  }
  return text;
}

std::string shown(std::int64_t time, bool measured) {
  return measured ? text::formatted("%.4g ms", static_cast<double>(time) / 1e6)
                  : text::formatted("%.4g TFLOP", static_cast<double>(time) / 1e12);
}

void write_text(const RunSchedule& schedule, const ScheduleDrawing& drawing, bool measured, std::ostream& out) {
  const Timeline& timeline = drawing.timeline;
  const PipelineShape& shape = schedule.plan.shape;
  std::size_t widest = 6;
  for (std::size_t stage = 0; stage < timeline.stages.size(); ++stage)
    widest = std::max(widest, layers_of(schedule.plan, stage).size());
  const int width = static_cast<int>(widest);
  out << text::formatted("%s: %d stages x %d chunks, %d micro-batches, %d layers\n\n", schedule.scheduler.c_str(),
                         shape.stages, shape.chunks_per_stage, shape.micro_batches,
                         schedule.plan.placement.layers_of_chunk.back().second)
      << text::formatted("  stage  %-*s %9s %9s %9s %10s %12s\n", width, "layers", "busy", "idle", "inner", "peak live",
                         "activations");
  const auto percent = [&](std::int64_t time) {
    return 100.0 * static_cast<double>(time) / static_cast<double>(std::max<std::int64_t>(timeline.makespan, 1));
  };
  for (std::size_t stage = 0; stage < timeline.stages.size(); ++stage)
    out << text::formatted("  %5zu  %-*s %7.1f %% %7.1f %% %7.1f %% %10d %12s\n", stage, width,
                           layers_of(schedule.plan, stage).c_str(), percent(timeline.busy[stage]),
                           percent(timeline.makespan - timeline.busy[stage]), percent(timeline.inner_idle[stage]),
                           timeline.peak_live[stage],
                           text::format_bytes(activation_bytes(schedule.plan, timeline.stages[stage])).c_str());
  out << text::formatted("  makespan %s, bubble %.1f %%", shown(timeline.makespan, measured).c_str(),
                         100.0 * timeline.bubble());
  if (drawing.speculative < timeline.makespan)
    out << text::formatted("; with step_policy: speculative %s, bubble %.1f %%",
                           shown(drawing.speculative, measured).c_str(), 100.0 * drawing.speculative_bubble());
  out << "\n\n";
}

nlohmann::ordered_json to_json(const RunSchedule& schedule, const ScheduleDrawing& drawing) {
  nlohmann::ordered_json document = schedule_json(drawing);
  document["layers_of_chunk"] = schedule.plan.placement.layers_of_chunk;
  document["stage_of_chunk"] = schedule.plan.placement.stage_of_chunk;
  for (std::size_t stage = 0; stage < drawing.timeline.stages.size(); ++stage)
    document["per_stage"][stage]["activation_bytes"] = activation_bytes(schedule.plan, drawing.timeline.stages[stage]);
  return document;
}

}  // namespace

int show_schedules_of_run(const std::vector<RunSchedule>& schedules, bool measured, const std::string& format,
                          std::ostream& out) {
  std::vector<ScheduleDrawing> drawings;
  for (const RunSchedule& schedule : schedules)
    drawings.push_back({schedule.scheduler,
                        schedule.plan.shape,
                        {},
                        program::simulate(schedule.plan.orders, schedule.plan.placement, costs_of(schedule.plan)),
                        program::look_ahead(schedule.plan).period});
  if (format == "svg") {
    write_schedules_svg(drawings, out);
    return 0;
  }
  if (format == "trace") {
    write_schedules_trace(drawings, out);
    return 0;
  }
  if (format == "json") {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < schedules.size(); ++i) all.push_back(to_json(schedules[i], drawings[i]));
    out << (all.size() == 1 ? all.front() : all).dump(1) << "\n";
    return 0;
  }
  for (std::size_t i = 0; i < schedules.size(); ++i) write_text(schedules[i], drawings[i], measured, out);
  out << (measured ? "Times are the medians of each layer's in the trace.\n"
                   : "Times are floating-point operations as the model describes its layers; a backward takes twice a "
                     "forward.\n")
      << "idle: of the whole step; inner: between the stage's first pass and its last. peak live: passes of a\n"
         "micro-batch through a chunk; activations: of these, by the model's estimate, without recomputation\n";
  return 0;
}

}  // namespace strata::schedule
