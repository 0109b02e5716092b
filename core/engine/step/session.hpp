#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "config/features.hpp"
#include "stage/stage.hpp"
#include "step/executor.hpp"
#include "step/learning_rate.hpp"

namespace strata::step {

// Source of elements [begin, end) of a parameter: initial values, or values of a checkpoint.
using ValueSource = std::function<void(const ParameterInfo& parameter, std::int64_t begin, std::int64_t end,
                                       const at::Tensor& destination)>;

// One rank of a run: its stage, and what is done with it. In a dry run all tensors are on meta and the groups only
// count, so the same code predicts memory and traffic of a real run.
class Session {
 public:
  // Builds the stage; parameters are zero until fill(). `measured`: see Setup. [collective] over the run
  Session(const config::RunConfig& config, stage::PluginSet& plugins, group::GroupProvider& groups,
          const stage::RankNumbers& numbers, const stage::ModelSource& source, bool dry_run,
          stage::Purpose purpose = stage::Purpose::Training, const std::vector<stage::LayerTime>& measured = {});

  // Sets every parameter, frozen ones too, and publishes them. [collective]
  void fill(const ValueSource& source);
  // Publishes the parameters, which hold the weights to train at, to the ranks that compute with them; called at the
  // end of fill(). Then compares the ranks: throws Bug if two have different values of an element, or an element is not
  // counted exactly once. [collective]
  void publish();
  // Publishes without the comparison of publish(), for ranks that have different values.
  void publish_values();

  // Runs one training step of this rank's micro-batches. `next`: see Executor::run. [collective]
  StepOutcome step(const StepInput& input, const StepInput* next = nullptr);
  // True if steps begin with forwards that can run at the end of the previous step: `step_policy: speculative`, with a
  // schedule in which a stage ends its step before the last one does. Equal on all ranks.
  bool looks_ahead() const { return stage_.policy == config::StepPolicy::Speculative; }

  // Makes updates that are deferred to the next step. Call before reading parameters, master weights or optimizer state
  // between steps. [collective]
  void make_pending_updates();

  // Switches the layers to the weights to train at or, if the optimizer trains elsewhere, to evaluate. Called by
  // step(), evaluate() and before a step in parts. Does nothing without a change. Blocks the host. [collective]
  enum class Weights { Trained, Evaluated };
  void compute_with(Weights weights);

  // Returns sums of no forwards, for evaluate().
  stage::ForwardSums zero_sums() const {
    return stage::ForwardSums::zeros(stage_.layers.statistics(), stage_.memory.tensors());
  }
  // Runs only the forwards of this rank's micro-batches, at most a step's number, and adds their losses and statistics
  // to `sums`. Does not change the training. [collective]
  void evaluate(const std::vector<MicroBatch>& batches, const stage::ForwardSums& sums);
  // Returns the logits of the token that follows `tokens`, equal on every rank: 1 to a sample's length, all in the
  // vocabulary. fp32 [vocabulary] on the host, bit-equal on every rank. Does not change the training. Blocks the host.
  // Throws UserError if the model returns no logits. [collective]
  at::Tensor next_token_logits(std::span<const std::int64_t> tokens);
  // Returns the run's figures of `sums`; `valid_tokens`: tokens that count in this rank's micro-batches. Blocks the
  // host. Throws UserError if no token counts. [collective]
  stage::ForwardFigures figures(const stage::ForwardSums& sums, std::int64_t valid_tokens);
  std::int64_t counted(std::int64_t valid_tokens) const { return stage_.place.counted(valid_tokens); }

  // Returns the scheduler's name in messages.
  const std::string& scheduler() const { return stage_.plugins.scheduler.name; }
  const RunLearningRate& learning_rate() const { return learning_rate_; }
  const program::Program& program() const { return stage_.programs.training(); }
  // Returns this rank's flat parameters, as the program numbers them.
  const program::ParameterUse& parameter_use() const { return stage_.programs.parameter_use(); }
  // Returns the scheduler's orders for all stages.
  const program::StepPlan& plan() const { return stage_.layers.plan(); }
  // Returns the executor, for a step in parts, and for results of the previous step.
  Executor& executor() { return executor_; }
  const stage::Stage& stage() const { return stage_; }
  stage::Stage& stage() { return stage_; }
  const StateStore& store() const { return stage_.memory.store(); }
  StateStore& store() { return stage_.memory.store(); }
  MeshPlace place() const { return stage_.place.coordinates; }
  const MeshShape& mesh() const { return stage_.place.mesh; }
  // Asks plugins and model about the features of this training. [any rank]
  config::Answers answers() const;

 private:
  void check_values();

  RunLearningRate learning_rate_;
  stage::Stage stage_;
  Weights weights_ = Weights::Trained;  // weights that layers have
  Executor executor_;
};

}  // namespace strata::step
