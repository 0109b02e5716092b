// Ways to cut a model's layers into pipeline chunks, for Scheduler::place.
#pragma once
#include <strata/scheduler.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace strata::toolbox {

// Splits `layers` layers into `parts` runs [begin, end) whose lengths differ by at most one, shorter ones first. Throws
// UserError if there are fewer layers than parts.
std::vector<std::pair<int, int>> split_evenly(int layers, int parts);

// Splits the layers into `parts` non-empty runs and minimises the weight of the heaviest run. Ties: maximise the
// lightest run, then put lighter runs first, because the first stages of most schedules hold the most activations.
// Throws UserError if there are fewer layers than parts. Weights must not be negative.
std::vector<std::pair<int, int>> split_by_weight(const std::vector<std::int64_t>& weights, int parts);

// Throws UserError for several chunks per stage: for a schedule that runs one.
void require_one_chunk(const PipelineShape& shape);

// Puts chunk c on stage c modulo the number of stages and splits the layers by parameter count, as plain and
// interleaved pipelines do. Throws UserError if there are fewer layers than chunks.
Placement place_in_turn(const std::vector<LayerCost>& layers, const PipelineShape& shape);

}  // namespace strata::toolbox
