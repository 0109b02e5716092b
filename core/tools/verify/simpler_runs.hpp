// The small run without one of its settings at a time: where a difference goes away with one, that is what it needs.
#pragma once
#include <string>
#include <vector>

#include "tools/verify/small_run.hpp"

namespace strata::verify {

// What the ranks of a mesh, or the parts of a step, are many of.
enum class Axis { None, Sequence, Tensor, Pipeline, Data, MicroBatches };

struct SimplerRun {
  std::string without;  // "parallel.sequence", "partitioner zero3"
  Axis axis = Axis::None;
  CheckedRun run;
};

// Those that the config accepts, of the same model and global batch.
std::vector<SimplerRun> simpler_runs(const CheckedRun& small);

// How many there are along an axis of the run's; 1 for None.
std::int64_t extent(const config::RunConfig& config, Axis axis);

}  // namespace strata::verify
