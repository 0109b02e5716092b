// A Scheduler decides which layers each pipeline stage holds and in which order a stage computes. It sees integers
// only. All else that a step does (sending, gathering, reducing) follows from this order and is written by the core,
// which also checks the order and explains what is wrong with it: a schedule needs no communication, no buffers and no
// deadlock analysis.
//
// The vocabulary: a model's layers are cut into `chunks`, contiguous runs of layers numbered along the model; chunk c +
// 1 takes what chunk c gives. Each stage holds `chunks_per_stage` of them. A micro-batch passes all chunks forward,
// then all backward.
#pragma once
#include <strata/export.hpp>
#include <strata/plugin.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata {

struct PipelineShape {
  int stages = 1;
  int chunks_per_stage = 1;  // virtual stages; more than one for interleaved and V-shaped schedules
  int micro_batches = 1;     // per step

  int chunks() const { return stages * chunks_per_stage; }
};

// What one layer costs for one micro-batch. Times are in any unit, the same for all layers.
struct LayerCost {
  std::int64_t parameters = 0;
  std::int64_t forward_time = 0;
  std::int64_t backward_time = 0;
  std::int64_t activation_bytes = 0;
};

// Where the chunks lie. Both vectors have one entry per chunk.
struct Placement {
  std::vector<int> stage_of_chunk;                   // each stage holds chunks_per_stage chunks
  std::vector<std::pair<int, int>> layers_of_chunk;  // [begin, end): none empty, together all layers in order
};

// Backward is BackwardInput and BackwardWeight in one. A split backward first finds the gradient of the chunk's input,
// which the stage before it waits for, and later those of the weights, which nobody waits for.
enum class ComputeKind { Forward, Backward, BackwardInput, BackwardWeight };

struct ComputeAction {
  ComputeKind kind = ComputeKind::Forward;
  int chunk = 0;
  int micro_batch = 0;
  int weight_version = 0;  // steps by which the weights used are older than the newest; a backward uses its forward's

  bool operator==(const ComputeAction&) const = default;
};

// "F0.2": forward of chunk 0, micro-batch 2; B, I (BackwardInput) and W (BackwardWeight) likewise. "F0.2@1": with
// weights one step old.
STRATA_EXPORT std::string to_string(const ComputeAction& action);
// The inverse. Throws UserError for any other text.
STRATA_EXPORT ComputeAction parse_compute_action(std::string_view text);
// Actions with white space between them: "F0.0 F0.1 B0.0 B0.1". Throws UserError.
STRATA_EXPORT std::vector<ComputeAction> parse_compute_order(std::string_view text);

class STRATA_EXPORT Scheduler : public Plugin {
 public:
  ~Scheduler() override;

  // Where the chunks lie. `layers` has one entry per layer of the model. Throws UserError when this schedule cannot
  // place such a model. A pure function: every rank calls it and must get the same. [any rank]
  virtual Placement place(const std::vector<LayerCost>& layers, const PipelineShape& shape) const = 0;

  // What `stage` computes in one step, in order: for each of its chunks and each micro-batch one Forward, and after it
  // one Backward, or one BackwardInput and after that one BackwardWeight. The stage of a chunk is the one `place` gave.
  // Throws UserError when the schedule does not exist for this shape. A pure function: every rank asks for the order of
  // every stage, because what is sent when depends on both ends. [any rank]
  virtual std::vector<ComputeAction> order(const PipelineShape& shape, int stage) const = 0;
};

}  // namespace strata
