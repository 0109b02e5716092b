// Checks the results of a Scheduler. `scheduler` is its name in messages, "scheduler/NAME". Each function throws
// UserError with what was found and the rule; for orders, WrongOrders, and the stage x time grid follows with the
// action marked.
#pragma once
#include "program/timeline.hpp"

#include <strata/error.hpp>

#include <optional>
#include <string>

namespace strata::runtime {

// Orders that a scheduler gave and that cannot be carried out: a fault of the plugin, where an error of the plugin's
// own refuses a shape that it does not take.
class STRATA_EXPORT WrongOrders : public UserError {
 public:
  using UserError::UserError;
};

// Every chunk is on a stage, each stage has chunks_per_stage chunks, no chunk is empty, and together they are all
// layers in order.
void validate_placement(const std::string& scheduler, const Placement& placement, const PipelineShape& shape,
                        int layers);

// Every stage computes only its own chunks, one Forward and one Backward (or BackwardInput, then BackwardWeight) per
// micro-batch, in an order that all stages can complete. A forward uses a version of the weights that is there, and its
// backward the same. Updates are as Scheduler::order says, each after the backwards whose gradients it takes and before
// all later ones. `placement` must be valid.
void validate_orders(const std::string& scheduler, const ComputeOrders& orders, const Placement& placement,
                     const PipelineShape& shape);

// Checks that no stage holds more passes at once than the scheduler declares (Scheduler::peak_live). `orders` are
// valid.
void validate_peak_live(const std::string& scheduler, const ComputeOrders& orders, const Placement& placement,
                        const std::vector<std::optional<int>>& declared);

}  // namespace strata::runtime
