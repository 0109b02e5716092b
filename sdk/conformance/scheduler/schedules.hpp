// What the cases of schedulers ask of one.
#pragma once
#include <strata/scheduler.hpp>

#include <optional>
#include <string>
#include <vector>

#include "program/timeline.hpp"
#include "runner/case.hpp"

namespace strata::conformance {

// Of stages 1 to 8, chunks per stage 1 to 3, micro-batches 1 to 16 those that differ most.
std::vector<PipelineShape> some_shapes();

// "3 stages, 2 chunks per stage, 5 micro-batches".
std::string to_string(const PipelineShape& shape);

// Layers that differ in cost: some cost nothing, one costs as much as all others.
std::vector<LayerCost> layers_of(int count);

// The placement of `layers` layers and every stage's order; nothing where place() or order() refuses with a UserError.
struct Schedule {
  Placement placement;
  runtime::ComputeOrders orders;
};
std::optional<Schedule> schedule_of(const Scheduler& scheduler, const PipelineShape& shape, int layers);
inline std::optional<Schedule> schedule_of(const Scheduler& scheduler, const PipelineShape& shape) {
  return schedule_of(scheduler, shape, shape.chunks() + 1);
}

// Calls `work` for each of the shapes that the scheduler takes; a failure gets the shape in front. Throws Failure when
// it takes none.
void for_each_schedule(const Scheduler& scheduler, const std::vector<PipelineShape>& shapes,
                       const std::function<void(const PipelineShape&, const Schedule&)>& work);

}  // namespace strata::conformance
