#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "data/samples.hpp"

namespace strata::data {

// Distribution of each step's global batch over ranks and micro-batches: step s trains on positions [s * G, (s +
// 1) * G) with G = ranks * micro_batch * accumulation, and micro-batch a of data-parallel rank r is the (a * ranks
// + r)-th run of micro_batch positions in it. So the samples of a step depend only on G, not on the ranks. [any
// rank]
struct BatchPlan {
  std::int64_t micro_batch = 1;   // samples of a micro-batch
  std::int64_t ranks = 1;         // data-parallel ranks
  std::int64_t accumulation = 1;  // micro-batches of a rank in a step

  std::int64_t global_batch() const { return ranks * micro_batch * accumulation; }
  // Returns the first of a micro-batch's consecutive positions. Throws Bug when step, micro-batch or rank is out of
  // range.
  std::int64_t first_position(std::int64_t step, std::int64_t micro_batch_index, std::int64_t rank) const;
};

// Target that the loss ignores; see MicroBatch::targets.
inline constexpr std::int64_t ignored_target = -100;

// One micro-batch. Both tensors are int64 on the CPU, contiguous, of shape [micro_batch, seq_len]; targets are the
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
  const TokenSource& source() const { return samples_.source(); }

  // Returns micro-batch `micro_batch_index` of data-parallel rank `rank` in step `step`. Throws EnvironmentError when a
  // file was truncated.
  TokenBatch micro_batch(std::int64_t step, std::int64_t micro_batch_index, std::int64_t rank) const;

 private:
  OrderedSamples samples_;
  BatchPlan plan_;
};

}  // namespace strata::data
