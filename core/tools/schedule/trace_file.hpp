// Reads what `strata train --trace` wrote.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "program/lower.hpp"
#include "stage/layer_costs.hpp"

namespace strata::schedule {

// Nanoseconds since the trace began.
struct Event {
  std::string category;  // "forward", "backward", "wait", "gather", "reduce", "transfer", "offload", "end of step"
  std::string op;        // "Forward"; empty for a wait
  int chunk = -1;        // of a compute
  int micro_batch = -1;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  int layer = -1;                      // of a compute
  std::int64_t waited_for_tensor = 0;  // of a compute, for collectives of its tensor group
};

struct RankTrace {
  int rank = 0;
  int stage = 0;
  std::map<std::int64_t, std::vector<Event>> steps;  // by step, in order of time
};

struct TraceFile {
  std::string scheduler;
  std::string device;
  PipelineShape shape;
  Placement placement;
  std::vector<RankTrace> ranks;
};

// Throws UserError for a file that cannot be read or is no such trace.
TraceFile read_trace(const std::string& path);

// By layer, the medians over ranks, steps and micro-batches. A backward that is not split is taken for half of each
// kind. Throws UserError where a layer has no pass in the trace.
std::vector<stage::LayerTime> layer_times(const TraceFile& trace, const std::string& path);

}  // namespace strata::schedule
