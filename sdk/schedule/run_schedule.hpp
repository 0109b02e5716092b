// `strata schedule show --config`: schedules of a run's own model.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "program/lower.hpp"

namespace strata::cli {

struct RunSchedule {
  std::string scheduler;
  runtime::StepPlan plan;
};

// Simulates each schedule with what its chunks cost by the model's own description, and writes them as `format`: text
// (tables), svg or json. The schedules are of one model. Returns the exit status.
int show_schedules_of_run(const std::vector<RunSchedule>& schedules, const std::string& format, std::ostream& out);

}  // namespace strata::cli
