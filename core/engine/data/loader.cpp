#include "data/loader.hpp"

#include <ATen/ops/empty.h>
#include <strata/error.hpp>

#include <algorithm>
#include <utility>
#include <vector>

namespace strata::data {

std::int64_t BatchPlan::first_position(std::int64_t step, std::int64_t micro_batch_index) const {
  strata_check(step >= 0, "BatchPlan: steps count from 0");
  strata_check(micro_batch_index >= 0 && micro_batch_index < accumulation, "BatchPlan: no such micro-batch in a step");
  return step * global_batch() + place_in_batch(micro_batch_index);
}

Loader::Loader(OrderedSamples samples, BatchPlan plan) : samples_(std::move(samples)), plan_(plan) {
  strata_check(plan_.micro_batch >= 1 && plan_.ranks >= 1 && plan_.accumulation >= 1,
               "Loader: sizes of a batch are positive");
  strata_check(plan_.rank >= 0 && plan_.rank < plan_.ranks, "Loader: no such rank on the data axis");
}

TokenBatch Loader::micro_batch(std::int64_t step, std::int64_t micro_batch_index) const {
  const std::int64_t length = samples_.seq_len(), rows = plan_.micro_batch;
  const std::int64_t first = plan_.first_position(step, micro_batch_index);
  TokenBatch batch{at::empty({rows, length}, at::kLong), at::empty({rows, length}, at::kLong), 0};
  auto* tokens = batch.tokens.mutable_data_ptr<std::int64_t>();
  auto* targets = batch.targets.mutable_data_ptr<std::int64_t>();
  std::vector<std::int64_t> sample(static_cast<std::size_t>(length) + 1);
  std::vector<std::uint8_t> is_target(sample.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    samples_.read(first + row, sample.data(), is_target.data());
    std::copy(sample.begin(), sample.end() - 1, tokens + row * length);
    for (std::int64_t token = 0; token < length; ++token) {
      const auto next = static_cast<std::size_t>(token) + 1;
      targets[row * length + token] = is_target[next] != 0 ? sample[next] : ignored_target;
      batch.valid_tokens += is_target[next] != 0;
    }
  }
  return batch;
}

}  // namespace strata::data
