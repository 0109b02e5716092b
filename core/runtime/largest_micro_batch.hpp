// defines: MicroBatchFit, largest_micro_batch, with_micro_batch
#pragma once
#include <cstdint>
#include <functional>

#include "config/run_config.hpp"
#include "plugin_host/registry.hpp"

namespace strata::runtime {

// Larger micro-batches than this are not looked for.
inline constexpr std::int64_t most_samples = 1 << 16;

struct MicroBatchFit {
  std::int64_t samples = 0;     // 0: not even one fits
  std::int64_t bytes = 0;       // what the rank that needs most needs with that many; with one where none fits
  std::int64_t next_bytes = 0;  // and with one more; 0 where `samples` is most_samples
};

// The config with another micro-batch: its accumulation stays, and its global batch follows.
config::RunConfig with_micro_batch(config::RunConfig config, std::int64_t samples);

// The largest micro-batch with which no rank needs more than `budget` bytes (DryRun::needed), found by dry runs of the
// ranks that planned_ranks() names. Blocks the host; a dry run is made about five to ten times for each of them.
// Throws what dry_run() throws. [any rank]
MicroBatchFit largest_micro_batch(const config::RunConfig& config, plugin_host::PluginRegistry& registry,
                                  std::int64_t budget);

// The search itself: `needed` gives the bytes of a micro-batch, more for a larger one.
MicroBatchFit largest_micro_batch(const std::function<std::int64_t(std::int64_t samples)>& needed, std::int64_t budget);

}  // namespace strata::runtime
