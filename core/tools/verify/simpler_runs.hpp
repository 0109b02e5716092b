// The scaled-down run without one of its settings at a time: a setting whose removal removes the difference causes it.
#pragma once
#include <string>
#include <vector>

#include "tools/verify/small_run.hpp"

namespace strata::verify {

// Division of a step's work: over the ranks of a mesh, or into parts.
enum class Division { None, Sequence, Tensor, Pipeline, Data, MicroBatches };

struct SimplerRun {
  std::string without;  // "parallel.sequence", "partitioner zero3"
  Division division = Division::None;
  CheckedRun run;
};

// Returns the simpler runs that the config accepts, with the same model and global batch.
std::vector<SimplerRun> simpler_runs(const CheckedRun& small);

// Returns the number of parts; 1 for None.
std::int64_t extent(const config::RunConfig& config, Division division);

}  // namespace strata::verify
