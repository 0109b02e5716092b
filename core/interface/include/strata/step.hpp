// Words that the program of a training step and a Partitioner share.
#pragma once
#include <cstdint>

namespace strata {

// Why a layer's parameters are wanted. Recompute: its backward runs its forward once more (activation checkpointing). A
// partitioner may gather differently in each, over the ranks of one node in backward, for instance.
enum class Phase { Forward, Backward, Recompute };

// Where one micro-batch's gradient stands among those that a step adds up.
struct Accumulation {
  bool first = true;  // nothing has been accumulated in this step
  bool last = true;   // nothing follows in this step: the sum must now become final
};

// How far the parameters of coming layers may be gathered ahead of their use, and when those of a layer may stay.
// "Elements" are elements of full (gathered) flat parameters. A limit is never exceeded, but for one rule: what a
// single layer needs is always gathered.
struct Lookahead {
  int layers = 0;             // a prefetch starts at most so many layer computations before its use; 0: no prefetch
  std::int64_t elements = 0;  // prefetched and not yet used, at most
  std::int64_t reuse_distance =
      0;  // stay gathered when layers of at most so many elements compute before the next use; < 0: never
  std::int64_t live_parameters = 0;  // gathered, being gathered or kept, at most
  bool resident = false;             // parameters are always in place: the program has no gathers and releases
};

}  // namespace strata
