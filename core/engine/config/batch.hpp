// The arithmetic between numbers of ranks and samples:
//   world size   = data x the sizes of all other axes of the mesh
//   global_batch = micro_batch x accumulation x data
// Missing numbers are derived, exactly or not at all; nothing is rounded to fit.
#pragma once
#include <strata/error.hpp>
#include <strata/mesh.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace strata::config {

// A number from the config; without a value if left out or `auto`.
struct Given {
  std::optional<std::int64_t> value;
  Place place;
};

struct ParallelSizes {
  MeshShape mesh;
  std::int64_t size(Axis axis) const { return mesh.size(axis); }  // 64 bits wide, for products
  std::string text;  // "data-parallel size 2 = world size 4 (--nproc) / (pipeline 2 x tensor 1)"
};

// Computes the sizes from those of `given`, all >= 1. Without a value the data axis is derived and others are 1. Throws
// UserError when the world cannot be divided: the numbers, the rule, the two nearest valid world sizes.
ParallelSizes solve_parallel(std::int64_t world_size, const std::string& world_origin,
                             const std::map<Axis, Given>& given);

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
  // Derivation of a value that was not given; empty for a given one.
  std::string micro_batch_origin;
  std::string accumulation_origin;
  std::string global_batch_origin;
};

// Solves the eight cases of given and missing sizes:
//   all three               must agree
//   two                     the third follows
//   micro_batch             accumulation 1
//   global_batch            accumulation 1
//   accumulation, or none   refused
// Throws UserError with the numbers, the derivation, and the two nearest legal values of global_batch.
Batch solve_batch(const BatchRequest& request);

}  // namespace strata::config
