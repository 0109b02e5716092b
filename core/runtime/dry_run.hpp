// defines: DryRun, dry_run
#pragma once
#include <strata/checked_group.hpp>
#include <strata/state_store.hpp>

#include <cstdint>
#include <string>

#include "config/run_config.hpp"
#include "plugin_host/registry.hpp"
#include "runtime/program/instruction.hpp"

namespace strata::runtime {

// What one rank will hold and send in a step.
struct DryRun {
  Ledger ledger;             // peaks of one step; equal to a real run's
  Traffic traffic;           // of one step, all groups
  std::int64_t parameters = 0;  // elements of the whole model
  Program program;
};

// Interprets the real program of `rank` with the real plugins over meta tensors and groups that only count: nothing is computed,
// allocated or sent, so any number of ranks can be asked for on any machine. Blocks the host. [any rank]
DryRun dry_run(const config::RunConfig& config, plugin_host::PluginRegistry& registry, int rank);

}  // namespace strata::runtime
