#pragma once
#include <cstdint>
#include <functional>

#include "data/token_source.hpp"

namespace strata::cli {

struct TokenStatistics {
  std::int64_t smallest = 0;  // ids
  std::int64_t largest = 0;
  std::int64_t distinct = 0;
  // Unigram entropy of the ids, nats per token: the loss of the best model without context.
  double unigram_entropy = 0.0;
};

// Reads all tokens. `progress(tokens so far)` is called from time to time.
TokenStatistics statistics_of(const data::TokenSource& source, const std::function<void(std::int64_t)>& progress = {});

}  // namespace strata::cli
