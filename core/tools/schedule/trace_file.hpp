// Reads a trace written by `strata train --trace`.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "program/lower.hpp"
#include "stage/layer_costs.hpp"

namespace strata::schedule {

// Times are in nanoseconds since the beginning of the trace.
struct Event {
  std::string category;  // "forward", "backward", "wait", "gather", "reduce", "transfer", "offload", "end of step"
  std::string op;        // "Forward"; empty for a wait
  int chunk = -1;        // chunk of a compute
  int micro_batch = -1;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  int layer = -1;                      // layer of a compute
  std::int64_t waited_for_tensor = 0;  // time that a compute waited for collectives of its tensor group
};

struct RankTrace {
  int rank = 0;
  int stage = 0;
  std::map<std::int64_t, std::vector<Event>> steps;  // by step, ordered by time
};

struct TraceFile {
  std::string scheduler;
  std::string device;
  PipelineShape shape;
  Placement placement;
  std::vector<RankTrace> ranks;
};

// Reads the file. Throws UserError if it cannot be read or is not such a trace.
TraceFile read_trace(const std::string& path);

// Returns the medians of each layer over ranks, steps and micro-batches. A backward that is not split counts half for
// each kind. Throws UserError for a layer without a pass in the trace.
std::vector<stage::LayerTime> layer_times(const TraceFile& trace, const std::string& path);

}  // namespace strata::schedule
