// defines: TokenBatch, Loader
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "data/sample_order.hpp"
#include "data/token_file.hpp"

namespace strata::data {

// One micro-batch. Both tensors are int64 on the CPU, contiguous, of shape [micro_batch, seq_len]; targets are the
// tokens that follow the inputs.
struct TokenBatch {
  at::Tensor tokens;
  at::Tensor targets;
  std::int64_t valid_tokens = 0;  // targets that count in the loss: all of them, for a file without padding
};

// Cuts micro-batches out of a token file: sample i is tokens [i * seq_len, (i + 1) * seq_len + 1), the first seq_len of
// them inputs and the last seq_len targets. [any rank]
class Loader {
 public:
  // The order's samples must be file.sample_count(seq_len); throws Bug otherwise.
  Loader(TokenFile file, std::int64_t seq_len, SampleOrder order, BatchPlan plan);

  const TokenFile& file() const { return file_; }
  const BatchPlan& plan() const { return plan_; }
  const SampleOrder& order() const { return order_; }
  std::int64_t seq_len() const { return seq_len_; }

  // Micro-batch `micro_batch_index` of data-parallel rank `rank` in step `step`. Throws EnvironmentError when the file
  // was cut.
  TokenBatch micro_batch(std::int64_t step, std::int64_t micro_batch_index, std::int64_t rank) const;

 private:
  TokenFile file_;
  std::int64_t seq_len_;
  SampleOrder order_;
  BatchPlan plan_;
};

}  // namespace strata::data
