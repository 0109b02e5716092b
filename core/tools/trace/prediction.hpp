// Lays what the ranks did over what their schedule predicts.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tools/schedule/trace_file.hpp"

namespace strata::trace {

// Of one stage in one step, in nanoseconds on the host's clock.
struct StageTimes {
  std::int64_t compute = 0;
  std::int64_t tensor = 0;          // of that, waited for collectives of the tensor group
  std::int64_t gathers = 0;         // parameters gathered, gradients reduced, buffers fetched and stored
  std::int64_t idle = 0;            // the rest of the time from the run's first pass to its last
  std::int64_t predicted_idle = 0;  // the same in the prediction
  std::int64_t end_of_step = 0;
};

// The time from the first pass of a step to the last, explained part by part: their sum is `measured`.
struct Explanation {
  std::int64_t predicted = 0;  // if every pass took the median of its kind and chunk, and nothing else took time
  std::int64_t gathers = 0;    // what gathers, reductions and offload before and between a pass's layers add
  std::int64_t uneven = 0;     // what it adds that passes took other times than their medians
  std::int64_t transfers = 0;  // what is left: transfers between stages, and time between instructions
  std::int64_t measured = 0;
};

struct Comparison {
  std::int64_t step = 0;
  std::vector<StageTimes> stages;
  Explanation explanation;
  std::int64_t end_of_step = 0;  // the longest stage's
  program::Timeline measured;    // from the first pass; of the first rank of each stage
  program::Timeline predicted;
};

// One entry for each traced step, by the first rank of each stage. Throws UserError if the trace has no step, or passes
// that no schedule has.
std::vector<Comparison> compare(const schedule::TraceFile& trace);

}  // namespace strata::trace
