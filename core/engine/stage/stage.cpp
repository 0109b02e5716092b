#include "stage/stage.hpp"

#include "config/conflicts.hpp"
#include "program/passes.hpp"
#include "stage/answers.hpp"

namespace strata::stage {

namespace {

config::StepPolicy policy_of(const Setup& setup, const Layers& layers) {
  const config::StepPolicy policy = setup.trains() ? setup.config.step_policy : config::StepPolicy::Plain;
  const bool looks_ahead = policy == config::StepPolicy::Speculative && program::look_ahead(layers.plan()).any();
  return policy == config::StepPolicy::Speculative && !looks_ahead ? config::StepPolicy::Plain : policy;
}

// Refuses features that cannot be combined before memory is allocated.
config::StepPolicy checked_policy(const Setup& setup, const Layers& layers) {
  if (setup.trains()) {
    const config::Answers answers = ask_features(setup.plugins, setup.place, layers, /*attached=*/false);
    config::check_conflicts({setup.config, &answers});
  }
  return policy_of(setup, layers);
}

}  // namespace

Stage::Stage(const Setup& setup)
    : place(setup.place),
      plugins(setup.plugins),
      memory(setup),
      groups(setup),
      layers(setup, memory, groups),
      policy(checked_policy(setup, layers)),
      values(setup, policy, memory, groups, layers),
      updates(setup, policy, memory, groups, layers, values),
      programs(setup, policy, layers, values, updates) {}

}  // namespace strata::stage
