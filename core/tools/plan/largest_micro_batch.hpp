#pragma once
#include <cstdint>
#include <functional>

#include "config/run_config.hpp"
#include "plugins/registry.hpp"

namespace strata::cli {

// The search stops here.
inline constexpr std::int64_t most_samples = 1 << 16;

struct MicroBatchFit {
  std::int64_t samples = 0;     // 0: not even one fits
  std::int64_t bytes = 0;       // bytes_needed() with `samples`, or with 1 when not even that fits
  std::int64_t next_bytes = 0;  // bytes_needed() with one sample more; 0 when `samples` is most_samples
};

// The largest micro-batch with which bytes_needed() is at most `budget`; train.accumulation stays, and the global batch
// follows. Blocks the host: five to ten dry runs of each pipeline stage. Throws what dry_run() throws. [any rank]
MicroBatchFit largest_micro_batch(const config::RunConfig& config, plugins::PluginRegistry& registry,
                                  std::int64_t budget);

// The search itself: `needed` gives the bytes of a micro-batch, at least as many for a larger one.
MicroBatchFit largest_micro_batch(const std::function<std::int64_t(std::int64_t samples)>& needed, std::int64_t budget,
                                  std::int64_t most = most_samples);

}  // namespace strata::cli
