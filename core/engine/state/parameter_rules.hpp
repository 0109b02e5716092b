// The config's `parameters:` rules, applied to a model.
#pragma once
#include <strata/model.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.hpp"

namespace strata::state {

// Training settings of one parameter.
struct ParameterSettings {
  bool trainable = true;
  double learning_rate_factor = 1.0;
  std::optional<double> weight_decay;  // empty: the optimizer's option
};

// The config's rules for parameters. Each rule selects parameters by a shell glob over their names, the model's own or
// those in Hugging Face files; of two rules that set the same value of a parameter the later wins. Tied parameters are
// one: a rule that names any of them applies to all.
class ParameterRules {
 public:
  // Applies the rules to the whole model, with equal results on all ranks. Throws UserError, with the rule's place,
  // when a rule matches no parameter, naming the nearest names, and when no parameter is left to train.
  ParameterRules(const std::vector<config::ParameterRule>& rules, const std::vector<LayerInfo>& layers,
                 const CheckpointNames& names);

  // Returns the settings by canonical name. Throws Bug for a parameter that no layer describes.
  const ParameterSettings& of(const std::string& parameter) const;

 private:
  std::map<std::string, ParameterSettings> settings_;  // settings by canonical name
};

}  // namespace strata::state
