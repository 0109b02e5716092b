// Checks the results of a Scheduler. `scheduler` is its name in messages, "scheduler/NAME". Each function throws
// UserError with what was found and the rule; for orders, WrongOrders, and the stage x time grid follows with the
// action marked.
#pragma once
#include "program/timeline.hpp"

#include <strata/error.hpp>

#include <optional>
#include <string>

namespace strata::program {

// Error about orders of a scheduler that cannot be carried out: a fault of the plugin, unlike the plugin's own errors,
// which refuse a shape.
class STRATA_EXPORT WrongOrders : public UserError {
 public:
  using UserError::UserError;
};

// Checks that every chunk is on a stage, each stage has chunks_per_stage chunks, no chunk is empty, and together they
// are all layers in order.
void validate_placement(const std::string& scheduler, const Placement& placement, const PipelineShape& shape,
                        int layers);

// Checks that every stage computes only its own chunks, one Forward and one Backward (or BackwardInput, then
// BackwardWeight) per micro-batch, in an order that all stages can complete. A forward uses an existing version of the
// weights, and its backward the same one. Updates follow Scheduler::order's rules, each after the backwards whose
// gradients it takes and before all later ones. `placement` must be valid.
void validate_orders(const std::string& scheduler, const ComputeOrders& orders, const Placement& placement,
                     const PipelineShape& shape);

// Checks that no stage holds more passes at once than the scheduler declares (Scheduler::peak_live). `orders` are
// valid.
void validate_peak_live(const std::string& scheduler, const ComputeOrders& orders, const Placement& placement,
                        const std::vector<std::optional<int>>& declared);

}  // namespace strata::program
