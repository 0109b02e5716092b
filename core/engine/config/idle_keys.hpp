#pragma once
#include "config/run_config.hpp"

namespace strata::config {

// Refuses keys that are given and have no effect with the other keys: a rate of a policy that is not chosen, a
// period of saving without a folder. A key is accepted if a later tree made it idle, or if the same tree
// switches it off ("", false, none): `--set step_policy=plain` works on a config with local.steps. Throws
// UserError.
void check_idle_keys(const Node& tree, const RunConfig& run);

}  // namespace strata::config
