// `offload: auto`: homes, ratios, recomputation and the order of passes by measured steps.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "resolve/resolve_run.hpp"
#include "stage/setup.hpp"

namespace strata::plan {

// A placement that was looked at.
struct PlacedStep {
  config::RunConfig config;
  double seconds = 0.0;           // of a step, as predicted; of the slowest rank
  std::int64_t device_bytes = 0;  // of the rank that takes the most; 0: nobody looked
};

struct OffloadChoice {
  PlacedStep chosen;
  std::vector<std::string> report;  // lines: what was measured, what it was chosen from, the keys it sets
};

// Rehearses the run with everything away from the device, predicts what a step takes with every other placement, and
// takes the fastest that fits `device_budget` and `memory_budget`: where the config gives none, what the machine has
// left, divided among `local_ranks`. All ranks come to the same. Throws UserError where nothing fits. [collective] over
// the run
OffloadChoice choose_offload(const resolve::ResolvedRun& run, const stage::RankNumbers& place, int local_ranks,
                             const stage::MakeGroups& make_groups);

// Replaces `offload: auto` in the config of `run` by what choose_offload() chooses; `logs`: logs the choice. Returns
// the predicted seconds of a step. Without `offload: auto` it returns nothing and calls check_device_budget(). Throws
// UserError. [collective] over the run
std::optional<double> settle_offload(resolve::ResolvedRun& run, const stage::RankNumbers& place, int local_ranks,
                                     const stage::MakeGroups& make_groups, bool logs);

// Throws UserError if the plan of any rank takes more of the device than device_budget says. [any rank]
void check_device_budget(const config::RunConfig& config, plugins::PluginRegistry& registry);

}  // namespace strata::plan
