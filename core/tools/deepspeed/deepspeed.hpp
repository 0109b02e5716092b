// DeepSpeed's ds_config.json in Strata's keys, by the table keys.yaml. Every key is honoured, accepted
// with the reason why there is nothing to do for it, or refused with a reason and what to use instead. A key that the
// table does not know is refused with the nearest; at the top, where DeepSpeed ignores such keys, only when one is
// near.
#pragma once
#include "resolve/dialect.hpp"

namespace strata::deepspeed {

class DeepSpeed final : public resolve::Dialect {
 public:
  // Keys of DeepSpeed, and no section that only Strata has.
  bool recognises(const config::Node& config) const override;
  // Takes deepspeed_compat (the version whose defaults hold) and deepspeed_allow (a list of keys whose refusal is
  // waived, where training is the same without them) out of trees[2]. Origins name DeepSpeed's keys.
  resolve::Translation translate(std::vector<config::Node>& trees, const config::PluginSource& plugins,
                                 const resolve::DialectAnswers& answers) const override;
  // The hidden size is asked of the model; of an "auto" batch the micro-batch is the largest part that fits
  // memory_budget.
  bool answer(const resolve::Translation& translation, const config::RunConfig& run, const config::World& world,
              plugins::PluginRegistry& registry, resolve::DialectAnswers& answers) const override;
};

}  // namespace strata::deepspeed
