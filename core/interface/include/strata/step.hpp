// Types shared by the program of a training step and Partitioner.
#pragma once
#include <cstdint>

namespace strata {

// Purpose of a gather of a layer's parameters. Recompute: backward runs the forward again (activation checkpointing). A
// partitioner may gather differently in each phase, e.g. only over the ranks of one node in backward.
enum class Phase { Forward, Backward, Recompute };

// Position of a micro-batch's gradient in the accumulation for an update: over a step, unless the schedule updates
// within it.
struct Accumulation {
  bool first = true;  // first gradient of the update: the accumulation begins
  bool last = true;   // last gradient of the update: the sum is final
};

// Limits of gathering ahead of use, and of keeping parameters gathered. "Elements" are elements of full (gathered) flat
// parameters. The only exception to the limits: the parameters of a single layer are always gathered.
struct Lookahead {
  int layers = 0;             // maximum distance from a prefetch to its use, in layer computations; 0: no prefetch
  std::int64_t elements = 0;  // maximum number of elements prefetched and not yet used
  // A layer stays gathered until its next use if the layers that compute before it have at most this many elements;
  // < 0: no layer stays gathered.
  std::int64_t reuse_distance = 0;
  std::int64_t live_parameters = 0;  // maximum number of elements gathered, prefetched and kept layers included
  bool resident = false;             // parameters are always whole: the program has no gathers and releases
};

}  // namespace strata
