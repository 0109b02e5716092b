// Simulates the compute orders of all stages with integer times.
#pragma once
#include <strata/scheduler.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace strata::program {

// Order of compute actions in one step; one entry per stage.
using ComputeOrders = std::vector<std::vector<ComputeAction>>;

struct ChunkCost {
  std::int64_t forward = 1;
  std::int64_t backward_input = 1;
  std::int64_t backward_weight = 1;
  std::int64_t communication = 0;  // time of a transfer to or from another stage

  std::int64_t of(ComputeKind kind) const;  // cost of a kind; Backward: the sum of input and weight; Update: 0
};

// Returns the same cost for every chunk.
std::vector<ChunkCost> uniform_costs(int chunks, const ChunkCost& cost);

struct TimedAction {
  ComputeAction action;
  std::int64_t start = 0;
  std::int64_t end = 0;
};

// Reason why a stage is blocked.
struct Blocked {
  ComputeAction waiting;  // next action of the stage
  ComputeAction needed;   // action that it waits for, which never runs
  int needed_stage = 0;   // stage of `needed`
};

struct Timeline {
  std::vector<std::vector<TimedAction>> stages;  // actions that ran; all of them if the run completed
  std::vector<std::optional<Blocked>> blocked;   // per stage; all empty if the run completed
  std::int64_t makespan = 0;                     // time from the first start to the last end
  std::vector<std::int64_t> busy;                // per stage, time spent computing
  std::vector<std::int64_t> inner_idle;          // per stage, time without an action between its first and its last
  std::vector<int> peak_live;  // per stage, the most (chunk, micro-batch) pairs whose activations are held
                               // at once: from their forward to their Backward or BackwardWeight
  bool complete() const;
  // Returns the pipeline bubble: the idle share of all stages' time, 0 to 1.
  double bubble() const;
};

// Simulates all stages, each in its order. An action starts when the previous one has ended and its inputs have
// arrived: a Forward needs the Forward of the previous chunk; a Backward or BackwardInput needs its own Forward and the
// Backward or BackwardInput of the next chunk; a BackwardWeight needs its BackwardInput; an Update nothing but its
// place in the order. Stops when no stage can continue. Chunks and stages must exist; the orders may otherwise be
// invalid.
Timeline simulate(const ComputeOrders& orders, const Placement& placement, const std::vector<ChunkCost>& costs);
// Simulates all stages with a time for each action, and transfers that take none. `not_before`: earliest start of an
// action; empty: no limit.
Timeline simulate(const ComputeOrders& orders, const Placement& placement,
                  const std::function<std::int64_t(const ComputeAction&)>& time_of,
                  const std::function<std::int64_t(const ComputeAction&)>& not_before = {});

}  // namespace strata::program
