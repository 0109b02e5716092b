#pragma once
#include <string>
#include <vector>

#include "config/run_config.hpp"
#include "config/tree.hpp"

namespace strata::config {

// The rules of a config's `parameters:` list. What a rule says must suit the run's `learning_rate` and
// `optimizer`. Throws UserError with the place of what is wrong.
std::vector<ParameterRule> read_parameter_rules(const Node& list, const LearningRateConfig& learning_rate,
                                                const PluginChoice& optimizer);

}  // namespace strata::config
