#pragma once
#include <cstdint>

namespace strata::stage {

// Times of a layer for one micro-batch, in nanoseconds.
struct LayerTime {
  std::int64_t forward = 0;
  std::int64_t backward_input = 0;  // includes the recomputed forward, if any
  std::int64_t backward_weight = 0;
};

}  // namespace strata::stage
