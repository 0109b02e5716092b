#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "data/samples.hpp"

namespace strata::data {

// A rank's part of each step's global batch: step s trains on positions [s * G, (s + 1) * G) with G = ranks *
// micro_batch * accumulation, and micro-batch a of rank r of the data axis is the (a * ranks + r)-th run of micro_batch
// positions in it. So the samples of a step depend only on G, not on the ranks. [any rank]
struct BatchPlan {
  std::int64_t micro_batch = 1;   // samples of a micro-batch
  std::int64_t ranks = 1;         // size of the data axis
  std::int64_t accumulation = 1;  // micro-batches of a rank in a step
  std::int64_t rank = 0;          // this rank's index on the data axis

  std::int64_t global_batch() const { return ranks * micro_batch * accumulation; }
  // Returns the place of a micro-batch's first sample in a global batch.
  std::int64_t place_in_batch(std::int64_t micro_batch_index) const {
    return (micro_batch_index * ranks + rank) * micro_batch;
  }
  // Returns the first of a micro-batch's consecutive positions. Throws Bug when step or micro-batch is out of range.
  std::int64_t first_position(std::int64_t step, std::int64_t micro_batch_index) const;
};

// Target that the loss ignores; see MicroBatch::targets.
inline constexpr std::int64_t ignored_target = -100;

// A rank's micro-batch. Both tensors are int64 on the CPU, contiguous, of shape [micro_batch, seq_len]; targets are the
// tokens that follow the inputs, or ignored_target for those that do not count in the loss.
struct TokenBatch {
  at::Tensor tokens;
  at::Tensor targets;
  std::int64_t valid_tokens = 0;  // targets that count in the loss
};

// Maker of micro-batches from the samples of a data set. [any rank]
class Loader {
 public:
  Loader(OrderedSamples samples, BatchPlan plan);

  const OrderedSamples& samples() const { return samples_; }
  const BatchPlan& plan() const { return plan_; }
  const TokenSource& source() const { return samples_.source(); }

  // Returns this rank's micro-batch `micro_batch_index` of step `step`. Throws EnvironmentError when a file was
  // truncated.
  TokenBatch micro_batch(std::int64_t step, std::int64_t micro_batch_index) const;

 private:
  OrderedSamples samples_;
  BatchPlan plan_;
};

}  // namespace strata::data
