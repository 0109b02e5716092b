// `strata schedule show --config`: schedules of a run's own model.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "program/lower.hpp"

namespace strata::schedule {

struct RunSchedule {
  std::string scheduler;
  program::StepPlan plan;
};

// Simulates each schedule with the costs of its chunks, and writes them as `format`: text (tables), svg, json or trace.
// The schedules are of one model. `measured`: costs are nanoseconds; otherwise operations by the model's own
// description. Returns the exit status.
int show_schedules_of_run(const std::vector<RunSchedule>& schedules, bool measured, const std::string& format,
                          std::ostream& out);

}  // namespace strata::schedule
