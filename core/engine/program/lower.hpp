// Lowers a scheduler's order to the complete program of one stage, by the passes of passes.hpp in their order.
#pragma once
#include "config/run_config.hpp"
#include "program/passes.hpp"

#include <string>

namespace strata::program {

// Checked pipeline plan of a run, the same on every rank.
struct StepPlan {
  PipelineShape shape;
  Placement placement;
  ComputeOrders orders;  // orders of every stage
};

// Returns the number of updates of every chunk within the step; 0: one update, at the step's end.
int updates_within_step(const ComputeOrders& orders);

// Returns the shape for Scheduler::order, with the costs of the placed chunks.
PipelineShape with_costs(PipelineShape shape, const std::vector<LayerCost>& layers, const Placement& placement);

// Calls the scheduler and checks its result. `scheduler` is its name in messages, "scheduler/NAME". Throws UserError.
StepPlan plan_step(const std::string& scheduler, const Scheduler& plugin, const PipelineShape& shape,
                   const std::vector<LayerCost>& layers);

// Returns by stage the longer of two look-aheads: by the placed chunks' costs in the model's estimate, and by equal
// costs.
LookAhead look_ahead(const StepPlan& plan);

struct LayerOptions {
  std::vector<bool> recompute;  // per layer of the model: backward recomputes the forward
  ParameterUse parameters;
  std::vector<int> replicated;  // trainable flat parameters that other stages hold too, in the same order on all
  std::vector<bool> sums_of_round{false};  // per round of the optimizer's update: true if it begins with sums
  config::StepPolicy policy = config::StepPolicy::Plain;
  bool defers_updates = false;  // updates BeforeUse, see update_plan.hpp
  double updates_at_end = 0.0;  // fraction: see deferred_updates()
  std::int64_t read_ahead = 0;  // bytes: see overlap_movement() in passes.hpp
};

// Returns the program of a training step on `stage`. Simulates the programs of all stages together, so the program
// cannot deadlock. A pure function.
Program lower_training(const StepPlan& plan, const LayerOptions& layers, const Lookahead& lookahead, int stage);
// Returns the program of the deferred updates that are pending after the last step.
Program lower_pending_updates(const StepPlan& plan, const LayerOptions& layers, const Lookahead& lookahead, int stage);
// Returns the program of a validation: only the forwards of micro-batches 0 to micro_batches - 1, in the order of the
// training step. `micro_batches` is at most the plan's number, and smaller at the end of the data.
Program lower_evaluation(const StepPlan& plan, const LayerOptions& layers, const Lookahead& lookahead, int stage,
                         int micro_batches);

}  // namespace strata::program
