// The scaled-down run without one of its settings at a time: a setting whose removal removes the difference causes it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/verify/small_run.hpp"

namespace strata::verify {

// How the work of a step is divided: over the ranks of an axis, or into parts.
struct Division {
  std::string parts;        // "data-parallel ranks", "micro-batches"; empty: not divided
  std::int64_t number = 1;  // of parts
  bool operator==(const Division&) const = default;
};
// The division that sequence parallelism adds to that over the tensor-parallel ranks.
inline constexpr std::string_view slices_of_the_sequence = "slices of the sequence";

struct SimplerRun {
  std::string without;  // "parallel.sequence", "partitioner zero3"
  Division division;
  CheckedRun run;
};

// Returns the simpler runs that the config accepts, with the same model and global batch.
std::vector<SimplerRun> simpler_runs(const CheckedRun& small);

}  // namespace strata::verify
