// The arithmetic between numbers of ranks and samples:
//   world size   = pipeline x tensor x data
//   global_batch = micro_batch x accumulation x data
// What is left out is derived, exactly or not at all; nothing is rounded to fit.
#pragma once
#include <strata/error.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace strata::config {

// A number from the config; without value where it was left out or `auto`.
struct Given {
  std::optional<std::int64_t> value;
  Place place;
};

struct ParallelSizes {
  std::int64_t pipeline = 1;
  std::int64_t tensor = 1;
  std::int64_t data = 1;
  std::string text;  // "data-parallel size 2 = world size 4 (--nproc) / (pipeline 2 x tensor 1)"
};

// All numbers are >= 1. Throws UserError when the world cannot be divided so: the numbers, the rule, the two nearest
// legal world sizes.
ParallelSizes solve_parallel(std::int64_t world_size, const std::string& world_origin, const Given& pipeline,
                             const Given& tensor, const Given& data);

struct BatchRequest {
  Given micro_batch;
  Given accumulation;
  Given global_batch;
  ParallelSizes parallel;
};

struct Batch {
  std::int64_t micro_batch = 0;
  std::int64_t accumulation = 0;
  std::int64_t global_batch = 0;
  // How a value came about that was not given; empty for one that was.
  std::string micro_batch_origin;
  std::string accumulation_origin;
  std::string global_batch_origin;
};

// All eight cases of given and missing:
//   all three               must agree
//   two                     the third follows
//   micro_batch             accumulation 1
//   global_batch            accumulation 1
//   accumulation, or none   refused
// Throws UserError with the numbers, what was derived from what, and the two nearest legal values of global_batch.
Batch solve_batch(const BatchRequest& request);

}  // namespace strata::config
