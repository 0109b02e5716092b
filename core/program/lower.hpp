// From a scheduler's order to the whole program of one stage. The passes, each a function from list to list in its own
// file:
//   1. expand_layers      chunks to layers                                     expand.hpp
//   2. add_communication  sends and receives between stages                    communicate.hpp
//   3. add_residency      Prefetch, Gather, Release per flat parameter         residency.hpp
//   4. add_reduction      BorrowGradient, Reduce per flat parameter            reduction.hpp
//      add_step           FinishGradients, Norm, Step, Publish
// A pass that reads ahead from and writes behind to lower memory tiers belongs after 4: it sees every Gather and
// Publish with its place, and adds instructions before them.
#pragma once
#include "program/parameter_use.hpp"
#include "program/timeline.hpp"

#include <string>

namespace strata::runtime {

// All that is known about the pipeline of a run, the same on every rank, checked.
struct StepPlan {
  PipelineShape shape;
  Placement placement;
  ComputeOrders orders;  // of every stage
};

// Asks the scheduler and checks what it gives. `scheduler` is its name in messages, "scheduler/NAME". Throws UserError.
StepPlan plan_step(const std::string& scheduler, const Scheduler& plugin, const PipelineShape& shape,
                   const std::vector<LayerCost>& layers);

struct LayerOptions {
  std::vector<bool> recompute;  // per layer of the model: its backward recomputes its forward
  ParameterUse parameters;
};

// The program of a training step on `stage`. All programs of the pipeline are run against each other before this one is
// given back, so it cannot deadlock. A pure function.
Program lower_training(const StepPlan& plan, const LayerOptions& layers, const Lookahead& lookahead, int stage);
// The forwards alone, of micro-batches 0 to micro_batches - 1, in the order of the training step: for validation. At
// most the plan's number of them, whose last ones the end of the data may not need.
Program lower_evaluation(const StepPlan& plan, const LayerOptions& layers, const Lookahead& lookahead, int stage,
                         int micro_batches);

}  // namespace strata::runtime
