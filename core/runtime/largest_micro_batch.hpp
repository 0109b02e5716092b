// defines: MemoryBudget, memory_budget, LargestMicroBatch, largest_micro_batch
#pragma once
#include <cstdint>
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

struct LargestMicroBatch {
  std::int64_t micro_batch = 0;
  std::int64_t bytes = 0;  // what the busiest rank takes with it
};

// The largest micro-batch of which dry runs (dry_run.hpp) of all ranks fit into the budget, doubling and then halving
// the interval; at most `most`. train.accumulation stays. Throws UserError when one sample does not fit. Blocks the
// host for some dry runs. [any rank]
LargestMicroBatch largest_micro_batch(config::RunConfig config, plugin_host::PluginRegistry& registry,
                                      const MemoryBudget& budget, std::int64_t most);

}  // namespace strata::runtime
