// Draws a simulated schedule as text, SVG or JSON.
#pragma once
#include "program/timeline.hpp"

#include <iosfwd>
#include <string>

namespace strata::runtime {

struct ScheduleDrawing {
  std::string scheduler;
  PipelineShape shape;
  ChunkCost cost;  // of every chunk
  Timeline timeline;
};

// The stage x time grid, and a table of busy time, idle time and peak live activations.
void write_schedule_text(const ScheduleDrawing& drawing, std::ostream& out);
// The same as a picture for a browser.
void write_schedule_svg(const ScheduleDrawing& drawing, std::ostream& out);
// {"scheduler", "stages", "chunks_per_stage", "micro_batches", "makespan", "bubble", "per_stage": [{"busy",
// "peak_live", "actions": [{"action", "start", "end"}]}]}
void write_schedule_json(const ScheduleDrawing& drawing, std::ostream& out);

}  // namespace strata::runtime
