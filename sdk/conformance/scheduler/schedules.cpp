#include "scheduler/schedules.hpp"

#include <strata/error.hpp>

#include "program/lower.hpp"

namespace strata::conformance {

std::vector<PipelineShape> some_shapes() {
  std::vector<PipelineShape> shapes;
  for (const int stages : {1, 2, 3, 4, 8})
    for (const int chunks : {1, 2, 3})
      for (const int micro_batches : {1, 2, 3, 4, 7, 8, 16}) shapes.push_back({stages, chunks, micro_batches});
  return shapes;
}

std::string to_string(const PipelineShape& shape) {
  return count(shape.stages, "stage") + " of " + count(shape.chunks_per_stage, "chunk") + ", " +
         count(shape.micro_batches, "micro-batch");
}

std::vector<LayerCost> layers_of(int count) {
  std::vector<LayerCost> layers;
  for (int i = 0; i < count; ++i) {
    const std::int64_t weight = i % 3 == 1 ? 0 : i == count - 1 ? 100 * count : 10 + i;
    layers.push_back({100 * weight, weight, weight, weight, 8 * weight, 100 * weight});
  }
  return layers;
}

std::optional<Schedule> schedule_of(const Scheduler& scheduler, const PipelineShape& shape, int layers) {
  Schedule schedule;
  try {
    schedule.placement = scheduler.place(layers_of(layers), shape);
  } catch (const UserError&) {
    return std::nullopt;
  }
  PipelineShape placed = shape;
  if (schedule.placement.layers_of_chunk.size() == static_cast<std::size_t>(shape.chunks()))
    placed = runtime::with_costs(shape, layers_of(layers), schedule.placement);
  int refused = 0;
  std::string text;
  for (int stage = 0; stage < shape.stages; ++stage) {
    try {
      schedule.orders.push_back(scheduler.order(placed, stage));
    } catch (const UserError& error) {
      ++refused;
      text = error.what();
    }
  }
  require(refused == 0 || refused == shape.stages,
          to_string(shape) + ": order() refuses only " + std::to_string(refused) + " of the stages: " + text);
  if (refused > 0) return std::nullopt;
  return schedule;
}

void for_each_schedule(const Scheduler& scheduler, const std::vector<PipelineShape>& shapes,
                       const std::function<void(const PipelineShape&, const Schedule&)>& work) {
  int taken = 0;
  for (const PipelineShape& shape : shapes) {
    try {
      const std::optional<Schedule> schedule = schedule_of(scheduler, shape);
      if (!schedule) continue;
      ++taken;
      work(shape, *schedule);
    } catch (const Failure&) {
      throw;
    } catch (const std::exception& error) {
      throw Failure(to_string(shape) + ": " + error.what());
    }
  }
  require(taken > 0,
          "the plugin refuses every shape of 1 to 8 stages, 1 to 3 chunks per stage and 1 to 16 micro-batches");
}

}  // namespace strata::conformance
