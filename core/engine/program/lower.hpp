// Lowers a scheduler's order to the complete program of one stage, by the passes of passes.hpp in their order.
#pragma once
#include "config/run_config.hpp"
#include "program/passes.hpp"

#include <string>

namespace strata::runtime {

// The checked pipeline plan of a run, the same on every rank.
struct StepPlan {
  PipelineShape shape;
  Placement placement;
  ComputeOrders orders;  // of every stage
};

// How many updates every chunk makes within the step; 0: one, at its end.
int updates_within_step(const ComputeOrders& orders);

// The shape as Scheduler::order takes it: with what the placed chunks cost.
PipelineShape with_costs(PipelineShape shape, const std::vector<LayerCost>& layers, const Placement& placement);

// Calls the scheduler and checks its result. `scheduler` is its name in messages, "scheduler/NAME". Throws UserError.
StepPlan plan_step(const std::string& scheduler, const Scheduler& plugin, const PipelineShape& shape,
                   const std::vector<LayerCost>& layers);

// With what the placed chunks cost by the model's estimate, or where they cost the same: by stage, the longer of the
// two.
LookAhead look_ahead(const StepPlan& plan);

struct LayerOptions {
  std::vector<bool> recompute;  // per layer of the model: its backward recomputes its forward
  ParameterUse parameters;
  std::vector<int> replicated;  // trainable flat parameters that other stages hold too, in an order equal on all
  std::vector<bool> sums_of_round{false};  // per round of the optimizer's update: whether it begins with sums
  config::StepPolicy policy = config::StepPolicy::Plain;
  bool defers_updates = false;  // see defer_updates() in passes.hpp
  double updates_at_end = 0.0;  // the same
  std::int64_t read_ahead = 0;  // bytes: see overlap_movement() in passes.hpp
};

// The program of a training step on `stage`. Before it returns, it simulates the programs of all stages together, so
// the program cannot deadlock. A pure function.
Program lower_training(const StepPlan& plan, const LayerOptions& layers, const Lookahead& lookahead, int stage);
// Where updates are deferred, those that the last step left to be made.
Program lower_pending_updates(const StepPlan& plan, const LayerOptions& layers, const Lookahead& lookahead, int stage);
// For validation: only the forwards of micro-batches 0 to micro_batches - 1, in the order of the training step.
// `micro_batches` is at most the plan's number; it is smaller at the end of the data.
Program lower_evaluation(const StepPlan& plan, const LayerOptions& layers, const Lookahead& lookahead, int stage,
                         int micro_batches);

}  // namespace strata::runtime
