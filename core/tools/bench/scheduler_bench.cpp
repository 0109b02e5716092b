// Compares a scheduler's bubble with the bubble that no order avoids (the last stage waits for the first micro-batch),
// and the time to plan a step with the time to copy as many actions.
#include <algorithm>

#include "program/lower.hpp"
#include "tools/bench/kinds.hpp"

#include <strata/format.hpp>

namespace strata::bench {

namespace {

constexpr int stages = 4;
constexpr int layers_a_stage = 4;
// A backward takes twice a forward.
constexpr LayerCost layer_cost{1'000'000, 2, 2, 2, 1'000'000, 1'000'000};

using Order = std::vector<ComputeAction>;

// Nothing is sent.
std::vector<program::ChunkCost> times_of(const PipelineShape& shape) {
  std::vector<program::ChunkCost> times;
  for (const LayerCost& cost : shape.chunk_costs)
    times.push_back({cost.forward_time, cost.backward_input_time, cost.backward_weight_time, 0});
  return times;
}

}  // namespace

std::vector<Row> bench_scheduler(const std::string& name, const Scheduler& scheduler, const Sizes& sizes,
                                 const InterleavedTimer& timer) {
  std::vector<Row> rows;
  const std::vector<LayerCost> layers(static_cast<std::size_t>(stages * layers_a_stage), layer_cost);
  for (const std::int64_t size : sizes) {
    const int chunks = scheduler.chunks_per_stage(stages, stages * layers_a_stage);
    const PipelineShape shape{stages, chunks, static_cast<int>(size)};
    const program::StepPlan plan = program::plan_step(name, scheduler, shape, layers);
    const program::Timeline timeline = program::simulate(
        plan.orders, plan.placement, times_of(plan.shape));  // The time of a stage's layers, and of the last stage's
                                                             // wait for the first micro-batch's first chunks.

    const double waiting = static_cast<double>((stages - 1) * layers_a_stage * layer_cost.forward_time) / chunks;
    const auto working = static_cast<double>(
        size * layers_a_stage *
        (layer_cost.forward_time + layer_cost.backward_input_time + layer_cost.backward_weight_time));
    const std::string shown = format("{} stages x {} micro-batches", stages, size);
    rows.push_back({.name = "bubble",
                    .size = shown,
                    .floor = format("the last stage waits for {} forwards", stages - 1),
                    .unit = Unit::Share,
                    .values = {timeline.bubble()},
                    .floor_values = {waiting / (waiting + working)}});

    std::size_t actions = 0, seen = 0;
    for (const Order& order : plan.orders) actions += order.size();
    rows.push_back(timer.time(
        {.name = "place and order of all stages", .size = shown, .floor = format("writing down {} actions", actions)},
        [&] {
          seen += scheduler.place(layers, shape).stage_of_chunk.size();
          for (int stage = 0; stage < stages; ++stage) seen += scheduler.order(plan.shape, stage).size();
        },
        {[&] {
          for (const Order& order : plan.orders) {
            const Order copy = order;
            asm volatile("" : : "r"(copy.data()) : "memory");  // prevents the compiler from removing the copy
          }
        }}));
  }
  return rows;
}

}  // namespace strata::bench
