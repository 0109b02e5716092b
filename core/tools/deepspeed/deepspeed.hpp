// Translates DeepSpeed's ds_config.json to Strata's keys, by the table keys.yaml. Every key is translated, accepted as
// without effect with a reason, or refused with a reason and an alternative. Unknown keys are refused with the nearest
// name; at the top level, where DeepSpeed ignores unknown keys, only if a known key is near.
#pragma once
#include "resolve/dialect.hpp"

namespace strata::deepspeed {

class DeepSpeed final : public resolve::Dialect {
 public:
  // True for a config with keys of DeepSpeed and no section that only Strata has.
  bool recognises(const config::Node& config)
      const override;  // Also takes deepspeed_compat (the version whose defaults apply) and deepspeed_allow (a list of
                       // keys whose refusal is waived, if training does not depend on them) out of trees[2]. Origins
                       // name DeepSpeed's keys.
  resolve::Translation translate(std::vector<config::Node>& trees, const config::PluginSource& plugins,
                                 const resolve::DialectAnswers& answers)
      const override;  // Finds the hidden size from the model and, for a batch size "auto", the largest micro-batch
                       // that fits memory_budget.
  bool answer(const resolve::Translation& translation, const config::RunConfig& run, const config::World& world,
              plugins::PluginRegistry& registry, resolve::DialectAnswers& answers) const override;
};

}  // namespace strata::deepspeed
