// Checks what a Scheduler gave. `scheduler` is its name in messages, "scheduler/NAME". Each throws UserError with one
// sentence: what was found and the rule; about orders, the stage x time grid follows with the place marked.
#pragma once
#include "program/timeline.hpp"

#include <string>

namespace strata::runtime {

// Every chunk on a stage, chunks_per_stage on each; no chunk empty, together all layers in order.
void validate_placement(const std::string& scheduler, const Placement& placement, const PipelineShape& shape,
                        int layers);

// Every stage computes its own chunks only, one Forward and one Backward (or BackwardInput, then BackwardWeight) for
// each micro-batch, in an order in which all stages can run to the end. `placement` is valid.
void validate_orders(const std::string& scheduler, const ComputeOrders& orders, const Placement& placement,
                     const PipelineShape& shape);

}  // namespace strata::runtime
