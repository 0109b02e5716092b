#pragma once
#include <strata/checked_group.hpp>
#include <strata/export.hpp>
#include <strata/model.hpp>
#include <strata/state_store.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "config/features.hpp"
#include "config/run_config.hpp"
#include "plugins/registry.hpp"
#include "program/instruction.hpp"
#include "program/lower.hpp"
#include "stage/layer_costs.hpp"

namespace strata::plan {

// How often a layer's parameters are gathered in a step; 0 where they stay on every rank.
struct LayerGathers {
  std::string layer;
  int gathers = 0;
};

// What one rank holds and sends in a step, and holds in the validation after it where the config has one.
struct DryRun {
  Ledger ledger;  // peaks of a step after the first, which made the slots; equal to a real run's
  // Bytes: the highest sum of the device's tensors at one moment of that step, with those that autograd's graphs and
  // operators hold. What libraries allocate within an operator is not counted, such as up to two megabytes that oneDNN
  // packs of a product in bf16.
  std::int64_t peak_total = 0;
  // Bytes of the device's memory: peak_total; where the device is the host, the host tier's bytes too.
  std::int64_t needed = 0;
  Traffic traffic;                    // of one step, all groups; without averages
  Traffic averages;                   // of weights over replica groups that train by themselves, in local.steps steps
  std::vector<LayerGathers> gathers;  // of this rank's layers, in order
  std::int64_t parameters = 0;        // elements of the whole model
  double forward_flops = 0.0;         // of one micro-batch through the whole model, as its layers describe themselves
  std::int64_t trainable = 0;         // of them not frozen
  program::Program program;
};

// Runs the real program of `rank` with the real plugins over meta tensors and groups that only count. Nothing is
// computed, allocated or sent, so a run of any number of ranks can be planned on any machine. Counts every meta tensor
// of the process: one dry run at a time. Blocks the host. [any rank]
STRATA_EXPORT DryRun dry_run(const config::RunConfig& config, plugins::PluginRegistry& registry, int rank);

// What one rank keeps from step to step, in bytes on all tiers: what the real plugins allocate before the first step,
// without the buffers that a step borrows for gathered parameters and full gradients.
struct ModelState {
  std::int64_t parameters = 0;  // elements of the whole model
  std::int64_t parameter_bytes = 0;
  std::int64_t gradient_bytes = 0;  // and copies of gradients in the reduction's format, where they are kept whole
  std::int64_t optimizer_bytes = 0;
  std::int64_t total() const { return parameter_bytes + gradient_bytes + optimizer_bytes; }
};

// The start of a dry run: no step is interpreted. `model_config`: see Session. [any rank]
STRATA_EXPORT ModelState model_state(const config::RunConfig& config, plugins::PluginRegistry& registry, int rank,
                                     const std::string& model_config);

// Elements of a whole model, a tied parameter once.
STRATA_EXPORT std::int64_t parameters_of(const Model& model);

// The ranks that a plan looks at, ascending: all of up to 16. Of more the first and the last of each pipeline stage: a
// stage's ranks differ by what is left over when its parameters are divided, and by nothing else.
STRATA_EXPORT std::vector<int> planned_ranks(const config::RunConfig& config);

// A rank's program of a training step, and what its instructions are about.
struct StepProgram {
  program::Program program;
  program::ParameterUse parameters;
};

// The start of a dry run: no step is interpreted. [any rank]
STRATA_EXPORT StepProgram step_program(const config::RunConfig& config, plugins::PluginRegistry& registry, int rank);

// What plugins and model answer about the features of a training (config/conflicts.hpp). No step is interpreted. Throws
// UserError if the run has a conflict. [any rank]
STRATA_EXPORT config::Answers answers_of(const config::RunConfig& config, plugins::PluginRegistry& registry);

// What the scheduler makes of the run's model: placement, orders and the costs of chunks. No step is interpreted.
// [any rank]
STRATA_EXPORT program::StepPlan step_plan(const config::RunConfig& config, plugins::PluginRegistry& registry,
                                          std::vector<stage::LayerTime> measured = {});

// Prepares rank 0 in the same way, without a step. Throws what every rank would throw before its first step because of
// the config, the plugins or the model, so that a process that starts ranks can say it once. [any rank]
STRATA_EXPORT void check_run(const config::RunConfig& config, plugins::PluginRegistry& registry);
// The same for an evaluation. `model_config`: see Session.
STRATA_EXPORT void check_evaluation(const config::RunConfig& config, plugins::PluginRegistry& registry,
                                    const std::string& model_config);

}  // namespace strata::plan
