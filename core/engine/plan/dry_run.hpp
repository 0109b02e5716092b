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

// Number of gathers of a layer's parameters in a step; 0 if they stay on every rank.
struct LayerGathers {
  std::string layer;
  int gathers = 0;
};

// Memory and traffic of one rank in a step, and in the validation after it if the config has one.
struct DryRun {
  Ledger ledger;  // peaks of a step after the first, which allocates the slots; equal to a real run's
  // Bytes: highest sum of the device's tensors at one moment of that step, including those that autograd's graphs and
  // operators hold. Memory that libraries allocate within an operator is not counted, such as up to 2 MB that oneDNN
  // packs for a product in bf16.
  std::int64_t peak_total = 0;
  // Bytes of the device's memory: peak_total, and the host tier's bytes if the device is the host.
  std::int64_t needed = 0;
  Traffic traffic;                    // all groups in one step; without averages
  Traffic averages;                   // averages of weights over replica groups, in local.steps steps
  std::vector<LayerGathers> gathers;  // layers of this rank, in order
  std::int64_t parameters = 0;        // elements of the whole model
  double forward_flops = 0.0;         // of one micro-batch through the whole model, as described by its layers
  std::int64_t trainable = 0;         // elements that are not frozen
  program::Program program;
};

// Runs the real program of `rank` with the real plugins over meta tensors and groups that only count. Nothing is
// computed, allocated or sent, so a run of any number of ranks can be planned on any machine. Counts every meta tensor
// of the process: one dry run at a time. Blocks the host. [any rank]
STRATA_EXPORT DryRun dry_run(const config::RunConfig& config, plugins::PluginRegistry& registry, int rank);

// Bytes that one rank keeps between steps, on all tiers: the allocations of the plugins before the first step, without
// buffers that a step borrows for gathered parameters and full gradients.
struct ModelState {
  std::int64_t parameters = 0;  // elements of the whole model
  std::int64_t parameter_bytes = 0;
  std::int64_t gradient_bytes = 0;  // includes copies of whole gradients in the reduction's format
  std::int64_t optimizer_bytes = 0;
  std::int64_t total() const { return parameter_bytes + gradient_bytes + optimizer_bytes; }
};

// Returns the model state from the start of a dry run, without a step. `model_config`: see Session. [any rank]
STRATA_EXPORT ModelState model_state(const config::RunConfig& config, plugins::PluginRegistry& registry, int rank,
                                     const std::string& model_config);

// Returns the elements of a whole model; a tied parameter counts once.
STRATA_EXPORT std::int64_t parameters_of(const Model& model);

// Returns the ranks that a plan covers, ascending: all of up to 16, otherwise the first and the last of each pipeline
// stage. Ranks of a stage differ only by the remainder of the division of its parameters.
STRATA_EXPORT std::vector<int> planned_ranks(const config::RunConfig& config);

// A rank's program of a training step, and the parameters that it uses.
struct StepProgram {
  program::Program program;
  program::ParameterUse parameters;
};

// Returns the program from the start of a dry run, without a step. [any rank]
STRATA_EXPORT StepProgram step_program(const config::RunConfig& config, plugins::PluginRegistry& registry, int rank);

// Returns the answers of plugins and model about the features of a training (config/conflicts.hpp), without a step.
// Throws UserError if the run has a conflict. [any rank]
STRATA_EXPORT config::Answers answers_of(const config::RunConfig& config, plugins::PluginRegistry& registry);

// Returns the scheduler's plan for the run's model: placement, orders and the costs of chunks, without a step. [any
// rank]
STRATA_EXPORT program::StepPlan step_plan(const config::RunConfig& config, plugins::PluginRegistry& registry,
                                          std::vector<stage::LayerTime> measured = {});

// Prepares rank 0 without a step. Throws the errors that every rank would throw before its first step because of the
// config, the plugins or the model, so that a process that starts ranks reports them once. [any rank]
STRATA_EXPORT void check_run(
    const config::RunConfig& config,
    plugins::PluginRegistry& registry);  // Performs check_run() for an evaluation. `model_config`: see Session.
STRATA_EXPORT void check_evaluation(const config::RunConfig& config, plugins::PluginRegistry& registry,
                                    const std::string& model_config);

}  // namespace strata::plan
