// Cuts of a model's layers into pipeline chunks, for Scheduler::place.
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

// Throws UserError for several chunks per stage, on behalf of a schedule that runs one.
void require_one_chunk(const PipelineShape& shape);

// Throws UserError for any number of chunks per stage other than two, on behalf of a schedule that runs two in a V.
void require_two_chunks(const PipelineShape& shape);

// Cuts the layers into chunks for these stages: by shape.layers_per_chunk if given, otherwise so that first chunks and
// then stages have about equal weights. Throws UserError if there are fewer layers than chunks.
Placement place_on(std::vector<int> stage_of_chunk, const std::vector<LayerCost>& layers, const PipelineShape& shape);

// Puts chunk c and chunk 2 stages - 1 - c on stage c, two chunks per stage, so that the first stage has the first and
// the last chunk. Throws UserError for another number of chunks or too few layers.
std::vector<int> stages_of_a_v(int stages);
Placement place_in_a_v(const std::vector<LayerCost>& layers, const PipelineShape& shape);

// Puts chunk c on stage c modulo the number of stages, as plain and interleaved pipelines do. Throws UserError if there
// are fewer layers than chunks.
Placement place_in_turn(const std::vector<LayerCost>& layers, const PipelineShape& shape);

}  // namespace strata::toolbox
