// `offload: auto`: chooses homes, ratios, recomputation and the order of passes by measured steps.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "resolve/resolve_run.hpp"
#include "stage/setup.hpp"

namespace strata::plan {

// An evaluated placement.
struct PlacedStep {
  config::RunConfig config;
  double seconds = 0.0;           // predicted duration of a step on the slowest rank
  std::int64_t device_bytes = 0;  // of the rank with the most; 0: not determined
};

struct OffloadChoice {
  PlacedStep chosen;
  std::vector<std::string> report;  // lines about the measurement, the choice and the keys that it sets
};

// Measures the run with everything away from the device, predicts the duration of a step with every other placement,
// and chooses the fastest that fits `device_budget` and `memory_budget`. Without these, the limit is the machine's free
// memory divided by `local_ranks`. The choice is equal on all ranks. Throws UserError if nothing fits. [collective]
// over the run
OffloadChoice choose_offload(const resolve::ResolvedRun& run, const stage::RankNumbers& place, int local_ranks,
                             const stage::MakeGroups& make_groups);

// Replaces `offload: auto` in the config of `run` by the result of choose_offload(), and logs it if `logs`. Returns the
// predicted seconds of a step. Without `offload: auto`, calls check_device_budget() and returns nothing. Throws
// UserError. [collective] over the run
std::optional<double> settle_offload(resolve::ResolvedRun& run, const stage::RankNumbers& place, int local_ranks,
                                     const stage::MakeGroups& make_groups, bool logs);

// Throws UserError if the plan of any rank exceeds device_budget. [any rank]
void check_device_budget(const config::RunConfig& config, plugins::PluginRegistry& registry);

}  // namespace strata::plan
