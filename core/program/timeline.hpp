// Runs the compute orders of all stages against a clock with integer times, without computing anything.
#pragma once
#include <strata/scheduler.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace strata::runtime {

// What each stage computes in one step, in order; one entry per stage.
using ComputeOrders = std::vector<std::vector<ComputeAction>>;

struct ChunkCost {
  std::int64_t forward = 1;
  std::int64_t backward_input = 1;
  std::int64_t backward_weight = 1;
  std::int64_t communication = 0;  // time that a transfer to another stage takes

  std::int64_t of(ComputeKind kind) const;  // Backward: input and weight
};

// The same cost for every chunk.
std::vector<ChunkCost> uniform_costs(int chunks, const ChunkCost& cost);
// From the layers in each chunk; a backward's time is split in halves, the odd unit to the weights.
std::vector<ChunkCost> chunk_costs(const std::vector<LayerCost>& layers, const Placement& placement,
                                   std::int64_t communication);

struct TimedAction {
  ComputeAction action;
  std::int64_t start = 0;
  std::int64_t end = 0;
};

// Why a stage cannot go on.
struct Blocked {
  ComputeAction waiting;  // the stage's next action
  ComputeAction needed;   // what has to be computed first, and never is
  int needed_stage = 0;   // where
};

struct Timeline {
  std::vector<std::vector<TimedAction>> stages;  // what ran; all of the orders when the run completed
  std::vector<std::optional<Blocked>> blocked;   // per stage; all empty when the run completed
  std::int64_t makespan = 0;                     // from the first start to the last end
  std::vector<std::int64_t> busy;                // per stage, time spent computing
  std::vector<int> peak_live;  // per stage, the most (chunk, micro-batch) pairs whose activations are held
                               // at once: from their forward to their Backward or BackwardWeight
  bool complete() const;
  // The part of all stages' time in which nothing is computed, 0 to 1.
  double bubble() const;
};

// Each stage runs its order from front to back; an action starts as soon as the one before it has ended and what it
// needs has been computed and has arrived: the forward of the chunk before, for a backward its own forward and the
// backward (or the BackwardInput) of the next chunk, for a BackwardWeight its BackwardInput. Stops where no stage can
// go on. Every chunk and stage named must exist; anything else may be wrong with the orders.
Timeline simulate(const ComputeOrders& orders, const Placement& placement, const std::vector<ChunkCost>& costs);

}  // namespace strata::runtime
