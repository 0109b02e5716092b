// `strata schedule show NAME`: draws a scheduler's plan, without a model or a run.
#pragma once
#include <iosfwd>
#include <string>

#include "program/timeline.hpp"

namespace strata::cli {

// Checks the schedule for this shape with one layer per chunk, simulates it with `cost` for every chunk and draws it as
// `format`: text, svg or json. Returns the exit status; throws UserError if the schedule does not support the shape, is
// invalid, or is too large to draw.
int schedule_show(const std::string& name, const Scheduler& scheduler, const PipelineShape& shape,
                  const runtime::ChunkCost& cost, const std::string& format, std::ostream& out);

}  // namespace strata::cli
