#pragma once
#include "config/run_config.hpp"

namespace strata::config {

// Refuses keys that are given and do nothing beside what other keys say: a rate of a policy that is not chosen, how
// often to save where nothing is saved. A key is left alone where a later tree made it idle, or where the same one says
// so ("", false, none): `--set step_policy=plain` tries the run of a config with local.steps otherwise. Throws
// UserError.
void check_idle_keys(const Node& tree, const RunConfig& run);

}  // namespace strata::config
