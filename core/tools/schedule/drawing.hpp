// Draws a simulated schedule as text, SVG or JSON.
#pragma once
#include "program/timeline.hpp"

#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace strata::schedule {

struct ScheduleDrawing {
  std::string scheduler;
  PipelineShape shape;
  std::optional<program::ChunkCost> cost;  // cost of every chunk, if equal
  program::Timeline timeline;
  std::int64_t speculative = 0;  // duration of a step that follows another with `step_policy: speculative`

  // Returns the idle share of all stages' time in that case, 0 to 1.
  double speculative_bubble() const;
};

// Returns the stage x time grid, and a table of busy time, idle time and peak live activations. `inner`: idle time
// between a stage's first action and its last.
void write_schedule_text(const ScheduleDrawing& drawing, std::ostream& out);
// Returns the grid as an SVG picture; several schedules below each other.
void write_schedules_svg(const std::vector<ScheduleDrawing>& drawings, std::ostream& out);
// Returns JSON: {"scheduler", "stages", "chunks_per_stage", "micro_batches", "makespan", "bubble", "speculative":
// {"step", "bubble"}, "per_stage": [{"busy", "inner_idle", "peak_live", "actions": [{"action", "start", "end"}]}]}
nlohmann::ordered_json schedule_json(const ScheduleDrawing& drawing);
// Returns the Trace Event Format, for ui.perfetto.dev and chrome://tracing: a process per schedule, a track per stage.
// A unit of time is shown as a microsecond.
void write_schedules_trace(const std::vector<ScheduleDrawing>& drawings, std::ostream& out);

}  // namespace strata::schedule
