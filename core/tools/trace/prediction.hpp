// Compares the measured passes of the ranks with the prediction of their schedule.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tools/schedule/trace_file.hpp"

namespace strata::trace {

// Measurements of one stage in one step, in nanoseconds of the host's clock.
struct StageTimes {
  std::int64_t compute = 0;
  std::int64_t tensor = 0;          // part of it that waited for collectives of the tensor group
  std::int64_t gathers = 0;         // time of gathers, reductions, fetches and stores
  std::int64_t idle = 0;            // remaining time from the run's first pass to its last
  std::int64_t predicted_idle = 0;  // idle time of the prediction
  std::int64_t end_of_step = 0;
};

// Parts of the time from the first pass of a step to the last; their sum is `measured`.
struct Explanation {
  std::int64_t predicted = 0;  // time if every pass took the median of its kind and chunk, and nothing else took time
  std::int64_t gathers = 0;    // added by gathers, reductions and offload before and between the layers of a pass
  std::int64_t uneven = 0;     // added by passes that took other times than their medians
  std::int64_t transfers = 0;  // remainder: transfers between stages, and time between instructions
  std::int64_t measured = 0;
};

struct Comparison {
  std::int64_t step = 0;
  std::vector<StageTimes> stages;
  Explanation explanation;
  std::int64_t end_of_step = 0;  // of the stage with the longest
  program::Timeline measured;    // from the first pass; first rank of each stage
  program::Timeline predicted;
};

// Returns one entry per traced step, from the first rank of each stage. Throws UserError if the trace has no step, or
// has passes of no schedule.
std::vector<Comparison> compare(const schedule::TraceFile& trace);

}  // namespace strata::trace
