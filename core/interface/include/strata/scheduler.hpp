// A Scheduler decides which layers each pipeline stage holds and in which order a stage computes. It works only with
// integers. The core adds everything else (sending, gathering, reducing) and checks the order, so a scheduler needs no
// communication, no buffers and no deadlock analysis.
//
// Terms: the model's layers are cut into `chunks`, contiguous runs of layers numbered along the model; chunk c + 1
// takes the output of chunk c. Each stage holds `chunks_per_stage` chunks. A micro-batch goes forward through all
// chunks, then backward.
#pragma once
#include <strata/export.hpp>
#include <strata/plugin.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata {

// Backward is BackwardInput and BackwardWeight in one. A split backward first computes the gradient of the chunk's
// input, for which the previous stage waits, and later the gradients of the weights, for which no stage waits. Update:
// the stage updates the chunk's weights within the step, without other stages, by the mean gradient of the
// micro-batches after those of the chunk's previous Update, up to its own micro_batch.
enum class ComputeKind { Forward, Backward, BackwardInput, BackwardWeight, Update };

// Cost of one layer, or of a chunk of layers, for one micro-batch. Times are in any unit, equal for all.
struct LayerCost {
  std::int64_t parameters = 0;
  std::int64_t forward_time = 0;
  std::int64_t backward_input_time = 0;   // time of the input's gradient
  std::int64_t backward_weight_time = 0;  // time of the weights' gradients; a whole backward takes the sum
  std::int64_t activation_bytes = 0;
  // Quantity that the cut balances over chunks, by parallel.cut: parameters, floating-point operations, or 1.
  std::int64_t weight = 0;
};

struct STRATA_EXPORT PipelineShape {
  int stages = 1;
  int chunks_per_stage = 1;  // virtual stages; more than one for interleaved and V-shaped schedules
  int micro_batches = 1;     // per step
  // Number of layers of each chunk, given in the config (parallel.layers_per_chunk), which place() follows; otherwise
  // empty.
  std::vector<int> layers_per_chunk = {};
  // Cost of each chunk, the sum over its layers. Empty before layers are placed, and for an order without a model: then
  // every pass takes one unit of time, and a whole Backward two.
  std::vector<LayerCost> chunk_costs = {};

  int chunks() const { return stages * chunks_per_stage; }
  // Returns the time of a pass of one micro-batch through the chunk; 0 for an Update.
  std::int64_t cost_of(ComputeKind kind, int chunk) const;
};

// Stage and layers of each chunk. Both vectors have one entry per chunk.
struct Placement {
  std::vector<int> stage_of_chunk;                   // stage of each chunk; each stage holds chunks_per_stage chunks
  std::vector<std::pair<int, int>> layers_of_chunk;  // [begin, end): none empty; together all layers in order
};

struct ComputeAction {
  ComputeKind kind = ComputeKind::Forward;
  int chunk = 0;
  int micro_batch = 0;
  // Number of this step's Updates of the chunk that the weights of a pass include. 0: the weights at the beginning of
  // the step, as in every order without an Update. A backward has its forward's number.
  int weight_version = 0;

  bool operator==(const ComputeAction&) const = default;
};

// Returns the action as text, letter, chunk and micro-batch: "F0.2"; F, B, I, W and U stand for Forward, Backward,
// BackwardInput, BackwardWeight and Update. "F0.2@1": with the weights after the chunk's first Update.
STRATA_EXPORT std::string to_string(const ComputeAction& action);
// Parses a text of to_string(ComputeAction). Throws UserError for any other text.
STRATA_EXPORT ComputeAction parse_compute_action(std::string_view text);
// Parses actions separated by white space: "F0.0 F0.1 B0.0 B0.1". Throws UserError.
STRATA_EXPORT std::vector<ComputeAction> parse_compute_order(std::string_view text);

class STRATA_EXPORT Scheduler : public Plugin {
 public:
  ~Scheduler() override;

  // Returns the number of chunks per stage for `parallel.chunks: auto`, at least 1 and at most what place() accepts for
  // a model of `layers` layers. 1 unless overridden. A pure function. [any rank]
  virtual int chunks_per_stage(int stages, int layers) const;

  // Assigns layers to chunks and chunks to stages. `layers` has one entry per layer of the model. Throws UserError if
  // this schedule cannot place the model. A pure function: every rank calls it and must get the same result. [any rank]
  virtual Placement place(const std::vector<LayerCost>& layers, const PipelineShape& shape) const = 0;

  // Returns the order in which `stage` computes in one step: for each of its chunks and each micro-batch one Forward,
  // later one Backward, or one BackwardInput and later one BackwardWeight. place() decides the stage of a chunk. Throws
  // UserError if the schedule does not support this shape. A pure function: every rank calls it for every stage,
  // because a transfer depends on both ends. The shape has the costs of place()'s chunks. [any rank]
  //
  // Without an Update in any order, all weights are updated at the end of the step, by the gradient of all its
  // micro-batches. With Updates, every chunk has the same number of them, each covers the same number of micro-batches,
  // and together they cover all: no gradient is left at the end of a step.
  virtual std::vector<ComputeAction> order(const PipelineShape& shape, int stage) const = 0;

  // Returns the largest number of activation sets that `stage` holds at once: one per micro-batch and chunk, each
  // from its Forward to its Backward or BackwardWeight. The core checks every order against it. Empty unless
  // overridden: no promise. A pure function. [any rank]
  virtual std::optional<int> peak_live(const PipelineShape& shape, int stage) const;
};

}  // namespace strata
