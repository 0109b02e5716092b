// Ways to cut a model's layers into pipeline chunks, for Scheduler::place.
#pragma once
#include <strata/scheduler.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace strata::toolbox {

// Cuts `layers` layers into `parts` runs [begin, end) whose lengths differ by at most one, the shorter ones first.
// Throws UserError when there are fewer layers than parts.
std::vector<std::pair<int, int>> split_evenly(int layers, int parts);

// Cuts the layers into `parts` runs, none empty, so that the heaviest run is as light as it can be; of such cuts the
// one whose lightest run is heaviest, and of those the one with the lighter runs first (the first stages of most
// schedules hold the most activations). Throws UserError when there are fewer layers than parts. Weights must not be
// negative.
std::vector<std::pair<int, int>> split_by_weight(const std::vector<std::int64_t>& weights, int parts);

// Chunk c on stage c modulo the number of stages, the layers split by their parameters: what plain and interleaved
// pipelines use. Throws UserError when there are fewer layers than chunks.
Placement place_in_turn(const std::vector<LayerCost>& layers, const PipelineShape& shape);

}  // namespace strata::toolbox
