#include "data/loader.hpp"

#include <ATen/ops/empty.h>
#include <strata/error.hpp>

#include <algorithm>
#include <utility>
#include <vector>

namespace strata::data {

Loader::Loader(TokenFile file, std::int64_t seq_len, SampleOrder order, BatchPlan plan)
    : file_(std::move(file)), seq_len_(seq_len), order_(order), plan_(plan) {
  strata_check(order_.samples() == file_.sample_count(seq_len_), "Loader: the order is of another number of samples");
  strata_check(plan_.micro_batch >= 1 && plan_.ranks >= 1 && plan_.accumulation >= 1,
               "Loader: sizes of a batch are positive");
}

TokenBatch Loader::micro_batch(std::int64_t step, std::int64_t micro_batch_index, std::int64_t rank) const {
  const std::vector<std::int64_t> samples = plan_.samples(order_, step, micro_batch_index, rank);
  const auto rows = static_cast<std::int64_t>(samples.size());
  TokenBatch batch{at::empty({rows, seq_len_}, at::kLong), at::empty({rows, seq_len_}, at::kLong), rows * seq_len_};
  auto* tokens = batch.tokens.mutable_data_ptr<std::int64_t>();
  auto* targets = batch.targets.mutable_data_ptr<std::int64_t>();
  for (const std::int64_t sample : samples) {
    file_.copy(sample * seq_len_, seq_len_, tokens);
    file_.copy(sample * seq_len_ + 1, seq_len_, targets);
    tokens += seq_len_;
    targets += seq_len_;
  }
  return batch;
}

}  // namespace strata::data
