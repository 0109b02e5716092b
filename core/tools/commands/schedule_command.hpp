// `strata schedule show NAME`: what a scheduler plans, without a model and without a run.
#pragma once
#include "program/timeline.hpp"

#include <iosfwd>
#include <string>

namespace strata::cli {

enum class ScheduleFormat { Text, Svg, Json };

// Checks the schedule for this shape with one layer per chunk, runs it in the simulator with `cost` for every chunk and
// writes the picture. Returns the exit status; throws UserError when the schedule does not exist for the shape, is
// wrong, or is too large to show.
int schedule_show(const std::string& name, const Scheduler& scheduler, const PipelineShape& shape,
                  const runtime::ChunkCost& cost, ScheduleFormat format, std::ostream& out);

}  // namespace strata::cli
