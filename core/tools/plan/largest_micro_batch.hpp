#pragma once
#include <cstdint>
#include <functional>

#include "config/run_config.hpp"
#include "plugins/registry.hpp"

namespace strata::cli {

// Upper limit of the search.
inline constexpr std::int64_t most_samples = 1 << 16;

struct MicroBatchFit {
  std::int64_t samples = 0;     // 0: not even one sample fits
  std::int64_t bytes = 0;       // bytes_needed() with `samples`, or with 1 if not even one fits
  std::int64_t next_bytes = 0;  // bytes_needed() with one sample more; 0 if `samples` is most_samples
};

// Returns the largest micro-batch with bytes_needed() of at most `budget`; train.accumulation is kept, and the global
// batch follows. Blocks the host: five to ten dry runs of each pipeline stage. Throws as dry_run(). [any rank]
MicroBatchFit largest_micro_batch(const config::RunConfig& config, plugins::PluginRegistry& registry,
                                  std::int64_t budget);

// Performs the search; `needed` returns the bytes of a micro-batch and never decreases with its size.
MicroBatchFit largest_micro_batch(const std::function<std::int64_t(std::int64_t samples)>& needed, std::int64_t budget,
                                  std::int64_t most = most_samples);

}  // namespace strata::cli
