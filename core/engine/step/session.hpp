#pragma once
#include <strata/plain_device.hpp>
#include <strata/state_store.hpp>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "config/features.hpp"
#include "config/run_config.hpp"
#include "group/group_provider.hpp"
#include "program/lower.hpp"
#include "state/parameter_rules.hpp"
#include "step/executor.hpp"
#include "step/layer_costs.hpp"
#include "step/learning_rate.hpp"
#include "step/plugin_set.hpp"
#include "step/stage.hpp"

namespace strata::runtime {

// Source of elements [begin, end) of a parameter: initial values, or values of a checkpoint.
using ValueSource = std::function<void(const ParameterInfo& parameter, std::int64_t begin, std::int64_t end,
                                       const at::Tensor& destination)>;

// Purpose of a session. Evaluation: every parameter is frozen, so there is no gradient and no optimizer state; only
// evaluate() works.
enum class Purpose { Training, Evaluation };

// Source of a model's sizes (config.json) and weights (files).
struct ModelSource {
  std::string config = {};  // text of a Hugging Face config.json; empty: the config has the sizes
  // Check before memory is allocated. Throws UserError, on all ranks alike, if the files hold another model's weights.
  std::function<void(const Model& model, const std::vector<LayerInfo>& layers)> check_layers = {};
};

// One rank of a run: its layers, their state, and the program of its step. In a dry run all tensors are on meta and the
// groups only count, so the same code predicts memory and traffic of a real run.
class Session {
 public:
  // Connects the groups and allocates the state; parameters are zero until fill(). `measured`: times of the layers, if
  // known; otherwise a run whose config cuts by time measures them, and a dry run counts operations. [collective] over
  // the run
  Session(const config::RunConfig& config, PluginSet& plugins, GroupProvider& groups, const RankNumbers& place,
          const ModelSource& source, bool dry_run, Purpose purpose = Purpose::Training,
          std::vector<LayerTime> measured = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

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
  bool looks_ahead() const { return policy_ == config::StepPolicy::Speculative; }

  // Makes updates that are deferred to the next step. Call before reading parameters, master weights or optimizer state
  // between steps. [collective]
  void make_pending_updates();

  // Switches the layers to the weights to train at or, if the optimizer trains elsewhere, to evaluate. Called by
  // step(), evaluate() and before a step in parts. Does nothing without a change. Blocks the host. [collective]
  enum class Weights { Trained, Evaluated };
  void compute_with(Weights weights);

  // Returns sums of no forwards, for evaluate().
  ForwardSums zero_sums() const { return ForwardSums::zeros(stage_.statistics, stage_.store->device()); }
  // Runs only the forwards of this rank's micro-batches, at most a step's number, and adds their losses and statistics
  // to `sums`. Does not change the training. [collective]
  void evaluate(const std::vector<MicroBatch>& batches, const ForwardSums& sums);
  // Returns the logits of the token that follows `tokens`, equal on every rank: 1 to a sample's length, all in the
  // vocabulary. fp32 [vocabulary] on the host, bit-equal on every rank. Does not change the training. Blocks the host.
  // Throws UserError if the model returns no logits. [collective]
  at::Tensor next_token_logits(std::span<const std::int64_t> tokens);
  // Returns the run's figures of `sums`; `valid_tokens`: tokens that count in this rank's micro-batches. Blocks the
  // host. Throws UserError if no token counts. [collective]
  ForwardFigures figures(const ForwardSums& sums, std::int64_t valid_tokens);
  // Returns the valid tokens that this rank counts for the run, out of those it read: every stage reads the same ones.
  std::int64_t counted(std::int64_t valid_tokens) const {
    return place_.at(Axis::Pipeline) == 0 && place_.at(Axis::Tensor) == 0 ? valid_tokens : 0;
  }

  // Returns the scheduler's name in messages.
  const std::string& scheduler() const { return plugins_.scheduler.name; }
  const RunLearningRate& learning_rate() const { return learning_rate_; }
  const Program& program() const { return program_; }
  // Returns this rank's flat parameters, as the program numbers them.
  ParameterUse parameter_use() const { return layer_options().parameters; }
  // Returns the scheduler's orders for all stages.
  const StepPlan& plan() const { return plan_; }
  // Returns the executor, for a step in parts, and for results of the previous step.
  Executor& executor() { return executor_; }
  const StageState& stage() const { return stage_; }
  StageState& stage() { return stage_; }
  const StateStore& store() const { return *stage_.store; }
  StateStore& store() { return *stage_.store; }
  // Returns every group of this rank, by name.
  const std::map<std::string, std::unique_ptr<CheckedGroup>>& groups() const { return groups_; }
  MeshPlace place() const { return place_; }
  const MeshShape& mesh() const { return mesh_; }
  // Asks plugins and model about the features of this training. [any rank]
  config::Answers answers() const;

 private:
  class Context;
  // RAII shutdown of the plugins while their objects still exist, also when the constructor throws: a partitioner may
  // have a collective in flight. Must be the last member, so that it is destroyed first.
  struct PluginsStop {
    ~PluginsStop();
    Session& session;
  };
  static constexpr const char* exchange_group = "optimizer";  // name of the group for an optimizer's own exchange
  void place_layers(const config::RunConfig& config, Scheduler& scheduler);
  void attach_precision();
  void connect_groups(GroupProvider& groups);
  void connect_sums(GroupProvider& groups);
  // Returns the number of elements of a parameter that the optimizer updates together. check_units() throws UserError
  // if tensor-parallel ranks would have parts of a unit.
  std::int64_t unit_of(const ParameterInfo& parameter) const;
  void check_units() const;
  Group* replicas() const;
  void train_locally(const config::RunConfig& config);
  std::vector<int> fragments_of_flats(std::int64_t fragments) const;
  void connect_own_exchange(GroupProvider& groups);
  bool is_replicated(const FlatParameter& flat) const;
  bool splits_backward() const;
  void find_ties();
  // Returns flat parameters of ties that other stages hold too, by the tie's name, or those an earlier stage counts.
  std::vector<int> flats_of_ties(bool counted_elsewhere) const;
  void connect_ties(GroupProvider& groups, const std::vector<Slice>& slices);
  void set_trainable(const std::function<bool(const std::string& parameter)>& trainable);
  void check_values();
  void make_buffers(const config::RunConfig& config);
  bool keeps_only_input(int layer, bool recompute) const;
  std::int64_t input_moves(int layer) const;
  void make_input_buffers(const Program& program);
  LayerOptions layer_options() const;
  // Reserves room on the device for the buffers that the program brings.
  void make_room(const Program& program);

  PluginSet& plugins_;
  std::vector<LayerTime> measured_;
  RunLearningRate learning_rate_;
  PlainDevice dry_device_{at::kMeta};
  MeshShape mesh_;
  MeshPlace place_;
  BatchShape batch_;
  std::map<std::string, std::unique_ptr<CheckedGroup>> groups_;
  std::unique_ptr<Linear> linear_;
  std::unique_ptr<Context> context_;
  std::vector<FlatParameter*> flat_;
  StageState stage_;
  std::unique_ptr<GradientPath> own_gradients_;  // null without an optimizer that does its own communication
  // Parameter that several layers of the model share.
  struct Tie {
    ParameterInfo first_use;
    std::set<int> stages;  // stages that hold it; the first counts it
    std::set<int> chunks;  // chunks that use it
  };
  std::map<std::string, Tie> ties_;  // ties by name
  StepPlan plan_;
  config::StepPolicy policy_;           // Plain also for Speculative without look-ahead
  std::int64_t read_ahead_;             // bytes: see LayerOptions
  double updates_at_end_;               // the same
  std::vector<bool> sums_of_round_;     // see LayerOptions
  Program program_;                     // program of a training step; empty for an evaluation
  Program pending_updates_;             // empty if no updates are deferred
  std::map<int, Program> evaluations_;  // programs by number of micro-batches
  Weights weights_ = Weights::Trained;  // weights that layers have
  Executor executor_;
  const PluginsStop plugins_stop_{*this};
};

}  // namespace strata::runtime
