#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "data/sample_order.hpp"
#include "data/samples.hpp"

namespace strata::data {

// One micro-batch. Both tensors are int64 on the CPU, contiguous, of shape [micro_batch, seq_len]; targets are the
// tokens that follow the inputs.
struct TokenBatch {
  at::Tensor tokens;
  at::Tensor targets;
  std::int64_t valid_tokens = 0;  // targets that count in the loss: all of them, for data without padding
};

// Cuts micro-batches out of the samples of a data set. [any rank]
class Loader {
 public:
  Loader(OrderedSamples samples, BatchPlan plan);

  const OrderedSamples& samples() const { return samples_; }
  const TokenSource& source() const { return samples_.source(); }
  const BatchPlan& plan() const { return plan_; }
  std::int64_t seq_len() const { return samples_.seq_len(); }

  // Micro-batch `micro_batch_index` of data-parallel rank `rank` in step `step`. Throws EnvironmentError when a file
  // was cut.
  TokenBatch micro_batch(std::int64_t step, std::int64_t micro_batch_index, std::int64_t rank) const;

 private:
  OrderedSamples samples_;
  BatchPlan plan_;
};

}  // namespace strata::data
