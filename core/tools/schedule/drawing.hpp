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
  std::optional<program::ChunkCost> cost;  // of every chunk, where it is the same
  program::Timeline timeline;
  std::int64_t speculative = 0;  // the time of a step that follows another with `step_policy: speculative`

  // The idle share of all stages' time then, 0 to 1.
  double speculative_bubble() const;
};

// The stage x time grid, and a table of busy time, idle time and peak live activations. `inner` is the idle time
// between a stage's first action and its last; the rest it waits for others to begin or to end.
void write_schedule_text(const ScheduleDrawing& drawing, std::ostream& out);
// The same as a picture for a browser; several under each other.
void write_schedules_svg(const std::vector<ScheduleDrawing>& drawings, std::ostream& out);
// {"scheduler", "stages", "chunks_per_stage", "micro_batches", "makespan", "bubble", "speculative": {"step", "bubble"},
// "per_stage": [{"busy", "inner_idle", "peak_live", "actions": [{"action", "start", "end"}]}]}
nlohmann::ordered_json schedule_json(const ScheduleDrawing& drawing);
// In the Trace Event Format, which ui.perfetto.dev and chrome://tracing open: a process for each schedule, a track for
// each stage. A unit of time is shown as a microsecond.
void write_schedules_trace(const std::vector<ScheduleDrawing>& drawings, std::ostream& out);

}  // namespace strata::schedule
