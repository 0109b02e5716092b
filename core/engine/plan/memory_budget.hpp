#pragma once
#include <strata/export.hpp>

#include <cstdint>
#include <string>

#include "config/run_config.hpp"
#include "plugins/registry.hpp"

namespace strata::plan {

// Memory that one rank may use.
struct MemoryBudget {
  std::int64_t bytes = 0;
  std::string origin;  // "memory_budget", "0.8 of 12.0 GiB that the host has left, shared by 2 ranks"
};

// Returns `given` bytes or, if 0, 80 % of the device's free memory divided by the `local_ranks` ranks that share it;
// the rest is for memory other than tensors. Creates the device plugin. [any rank]
STRATA_EXPORT MemoryBudget memory_budget(const config::RunConfig& config, std::int64_t given,
                                         plugins::PluginRegistry& registry, int local_ranks);

// Returns the largest DryRun::needed of all ranks, by a dry run of each pipeline stage's first rank. Throws as
// dry_run(). [any rank]
STRATA_EXPORT std::int64_t bytes_needed(const config::RunConfig& config, plugins::PluginRegistry& registry);

}  // namespace strata::plan
