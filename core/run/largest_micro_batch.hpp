#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "config/run_config.hpp"
#include "plugin_host/registry.hpp"

namespace strata::runtime {

// What one rank may take.
struct MemoryBudget {
  std::int64_t bytes = 0;
  std::string origin;  // "memory_budget", "0.8 of 12.0 GiB that the host has left, shared by 2 ranks"
};

// `given` bytes, or where that is 0 what the device has left now, less a fifth for what is not counted as tensors:
// shared by `local_ranks` ranks when they share it. Makes the device plugin. [any rank]
MemoryBudget memory_budget(const config::RunConfig& config, std::int64_t given, plugin_host::PluginRegistry& registry,
                           int local_ranks);

// What the rank that needs most needs (DryRun::needed), found by a dry run of each pipeline stage's first rank. Throws
// what dry_run() throws. [any rank]
std::int64_t bytes_needed(const config::RunConfig& config, plugin_host::PluginRegistry& registry);

// Larger micro-batches than this are not looked for.
inline constexpr std::int64_t most_samples = 1 << 16;

struct MicroBatchFit {
  std::int64_t samples = 0;     // 0: not even one fits
  std::int64_t bytes = 0;       // what the rank that needs most needs with that many; with one where none fits
  std::int64_t next_bytes = 0;  // and with one more; 0 where `samples` is the most that are looked for
};

// The config with another micro-batch: its accumulation stays, and its global batch follows.
config::RunConfig with_micro_batch(config::RunConfig config, std::int64_t samples);

// The largest micro-batch with which bytes_needed() is at most `budget`. train.accumulation stays. Blocks the host:
// five to ten dry runs of each pipeline stage. Throws what dry_run() throws. [any rank]
MicroBatchFit largest_micro_batch(const config::RunConfig& config, plugin_host::PluginRegistry& registry,
                                  std::int64_t budget);

// The search itself: `needed` gives the bytes of a micro-batch, at least as many for a larger one.
MicroBatchFit largest_micro_batch(const std::function<std::int64_t(std::int64_t samples)>& needed, std::int64_t budget,
                                  std::int64_t most = most_samples);

}  // namespace strata::runtime
