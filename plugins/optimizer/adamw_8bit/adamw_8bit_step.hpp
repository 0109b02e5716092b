#pragma once
#include <strata/optimizer.hpp>

#include "adamw/adamw_step.hpp"
#include "dynamic_map.hpp"

namespace strata::adamw_8bit {

// AdamW (adamw_step.hpp) with moments in 8 bits: those of the step before are read from codes, the update is computed
// in fp32 from the new ones, and these are then rounded to codes. The update of an element depends on its block only.
// piece.state is exp_avg, its scales, exp_avg_sq, its scales: codes of a byte (dynamic_map.hpp), the first moment's
// with a sign; fp32 scales, one for each block of block_elements.
//
// One pass over host memory. If scalars.apply is 0, nothing is written, whatever the gradient holds.
void blocks_step(std::span<Piece* const> pieces, const StepScalars& scalars,
                 const adamw::AdamwHyperparameters& hyperparameters);

// The moments' numbers on a device, in `memory`: fp32 [elements].
struct DeviceMaps {
  static constexpr std::int64_t elements = 2 * (256 + 8 + 9 + 9);
  struct Map {
    const DynamicMap* host;
    at::Tensor numbers, from, factors, counts;  // the last two begin with those below the first decade
  };
  Map first, second;

  explicit DeviceMaps(const at::Tensor& memory);
  at::Device device() const { return first.numbers.device(); }
};

// The same with libtorch's operators, on any device and dtype, no host synchronisation. `maps`: on the piece's device.
void blocks_reference_step(const Piece& piece, const StepScalars& scalars,
                           const adamw::AdamwHyperparameters& hyperparameters, const DeviceMaps& maps);

}  // namespace strata::adamw_8bit
