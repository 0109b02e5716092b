#pragma once
#include <cstdint>
#include <vector>

#include "config/learning_rate.hpp"
#include "config/run_config.hpp"
#include "config/tree.hpp"

namespace strata::config {

// The section learning_rate of a merged tree whose keys were checked, for a run of `steps` steps. Appends to `listing`
// what the chosen schedule reads; the sections of other schedules are checked and have no effect. learning_rate.base
// must be given where the schedule reads it. Throws UserError.
LearningRate resolve_learning_rate(const Node& tree, std::int64_t steps, std::vector<Resolved>& listing);

}  // namespace strata::config
