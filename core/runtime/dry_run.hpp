// defines: DryRun, dry_run, check_run, check_evaluation
#pragma once
#include <strata/checked_group.hpp>
#include <strata/state_store.hpp>

#include <cstdint>
#include <string>

#include "config/run_config.hpp"
#include "plugin_host/registry.hpp"
#include "runtime/program/instruction.hpp"

namespace strata::runtime {

// What one rank will hold and send in a step, and hold in the validation after it where the config has one.
struct DryRun {
  Ledger ledger;  // peaks of a step after the first, which made the slots; equal to a real run's
  std::int64_t peak_total =
      0;            // bytes: the highest sum of all the device's tensors at one moment of that step, those that only
                    // autograd's graphs and operators hold included; not what libraries take beside tensors
  Traffic traffic;  // of one step, all groups
  std::int64_t parameters = 0;  // elements of the whole model
  double forward_flops = 0.0;   // of one micro-batch through the whole model, as its layers describe themselves
  std::int64_t trainable = 0;   // of them not frozen
  Program program;
};

// Interprets the real program of `rank` with the real plugins over meta tensors and groups that only count: nothing is
// computed, allocated or sent, so any number of ranks can be asked for on any machine. Counts every meta tensor made in
// the process meanwhile: one dry run at a time. Blocks the host. [any rank]
DryRun dry_run(const config::RunConfig& config, plugin_host::PluginRegistry& registry, int rank);

// Prepares rank 0 in the same way and computes no step: throws what every rank would throw before its first step
// because of the config, the plugins or the model, so that whoever starts ranks can say it once. [any rank]
void check_run(const config::RunConfig& config, plugin_host::PluginRegistry& registry);
// The same for an evaluation. `model_config`: see Session.
void check_evaluation(const config::RunConfig& config, plugin_host::PluginRegistry& registry, const std::string& model_config);

}  // namespace strata::runtime
