// Types shared by the program of a training step and Partitioner.
#pragma once
#include <cstdint>

namespace strata {

// What a layer's parameters are gathered for. Recompute: backward runs the forward again (activation checkpointing). A
// partitioner may gather differently in each phase, e.g. only over the ranks of one node in backward.
enum class Phase { Forward, Backward, Recompute };

// The position of a micro-batch's gradient among those that are accumulated for an update: those of a step, unless the
// schedule updates within it.
struct Accumulation {
  bool first = true;  // nothing has been accumulated for the update yet
  bool last = true;   // nothing follows: the sum is now final
};

// How far ahead of their use parameters may be gathered, and when they may stay gathered. "Elements" are elements of
// full (gathered) flat parameters. The only exception to the limits: what a single layer needs is always gathered.
struct Lookahead {
  int layers = 0;             // a prefetch starts at most this many layer computations before its use; 0: no prefetch
  std::int64_t elements = 0;  // maximum prefetched and not yet used
  // A layer stays gathered if the layers that compute before its next use have at most this many elements; < 0: it
  // never does.
  std::int64_t reuse_distance = 0;
  std::int64_t live_parameters = 0;  // maximum gathered at any time, prefetched and kept layers included
  bool resident = false;             // parameters are always whole: the program has no gathers and releases
};

}  // namespace strata
