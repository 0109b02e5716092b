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

// Gives elements [begin, end) of a parameter: initial values, or a checkpoint's.
using ValueSource = std::function<void(const ParameterInfo& parameter, std::int64_t begin, std::int64_t end,
                                       const at::Tensor& destination)>;

// What a session is made for. Evaluation: every parameter is frozen, so there is no gradient and no optimizer state;
// only evaluate() works.
enum class Purpose { Training, Evaluation };

// A model whose sizes come from a config.json, or whose weights come from files.
struct ModelSource {
  std::string config = {};  // the text of a Hugging Face config.json; empty: the config has the sizes
  // Called before memory is allocated. Throws UserError, on all ranks alike, if the files hold another model's weights.
  std::function<void(const Model& model, const std::vector<LayerInfo>& layers)> check_layers = {};
};

// One rank of a run: its layers, their state, and the program of its step. In a dry run all tensors are on meta and the
// groups only count, so the same code predicts what a real run holds and sends.
class Session {
 public:
  // [collective] over the run: connects the groups and allocates the state; parameters are zero until fill().
  // `measured`: the layers' times, where somebody measured them; else a run whose config cuts by time does, and a dry
  // run counts operations.
  Session(const config::RunConfig& config, PluginSet& plugins, GroupProvider& groups, const RankNumbers& place,
          const ModelSource& source, bool dry_run, Purpose purpose = Purpose::Training,
          std::vector<LayerTime> measured = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Sets every parameter, frozen ones too, and publishes them. [collective]
  void fill(const ValueSource& source);
  // Publishes the parameters, which have the weights to train at, to the ranks that compute with them; fill() ends with
  // it. Then looks at what ranks hold: throws Bug where two have different values of an element, or it is not counted
  // once. [collective]
  void publish();
  // Without that look, for ranks that have different values.
  void publish_values();

  // One training step of this rank's micro-batches. `next`: see Executor::run. [collective]
  StepOutcome step(const StepInput& input, const StepInput* next = nullptr);
  // Whether steps begin with forwards that can be made at the end of the step before: `step_policy: speculative`, with
  // a schedule of which a stage ends its step before the last one. Equal on all ranks.
  bool looks_ahead() const { return policy_ == config::StepPolicy::Speculative; }

  // What reads parameters, master weights or optimizer state between steps calls it first: where updates are deferred
  // to the next step, they are made now. [collective]
  void make_pending_updates();

  // The weights to train at or, if the optimizer trains elsewhere, those to evaluate: step() and evaluate() call it,
  // and whoever begins a step in parts. Nothing happens where layers have these already. Blocks the host. [collective]
  enum class Weights { Trained, Evaluated };
  void compute_with(Weights weights);

  // Runs only the forwards of at most as many of this rank's micro-batches as a step has, and adds their losses to
  // `sums`, which are LossSums. Training is not changed by it. [collective]
  void evaluate(const std::vector<MicroBatch>& batches, const at::Tensor& sums);
  // The logits of the token that follows `tokens`, which are the same on every rank: as many as a sample has or fewer,
  // at least one, all of the vocabulary. fp32 [vocabulary] on the host, of the same bits on every rank. Training is not
  // changed by it. Blocks the host. Throws UserError where the model gives none. [collective]
  at::Tensor next_token_logits(std::span<const std::int64_t> tokens);
  // The run's means of `sums`, of whose micro-batches this rank read `valid_tokens` that count. Blocks the host. Throws
  // UserError where none does. [collective]
  MeanLosses mean_losses(const at::Tensor& sums, std::int64_t valid_tokens);
  // Of the valid tokens that this rank read, those that it counts for the run: every stage reads the same ones.
  std::int64_t counted(std::int64_t valid_tokens) const {
    return place_.pipeline == 0 && place_.tensor == 0 ? valid_tokens : 0;
  }

  // Its name in messages.
  const std::string& scheduler() const { return plugins_.scheduler.name; }
  const RunLearningRate& learning_rate() const { return learning_rate_; }
  const Program& program() const { return program_; }
  // What the program's instructions are about: of this rank.
  ParameterUse parameter_use() const { return layer_options().parameters; }
  // The scheduler's orders for all stages.
  const StepPlan& plan() const { return plan_; }
  // For a step that is carried out in parts, and for what it says of the step before.
  Executor& executor() { return executor_; }
  const StageState& stage() const { return stage_; }
  StageState& stage() { return stage_; }
  const StateStore& store() const { return *stage_.store; }
  StateStore& store() { return *stage_.store; }
  // Every group of this rank, by name.
  const std::map<std::string, std::unique_ptr<CheckedGroup>>& groups() const { return groups_; }
  MeshPlace place() const { return place_; }
  const MeshShape& mesh() const { return mesh_; }

 private:
  class Context;
  // Stops the plugins while what they were given is still there, also when the constructor throws: a partitioner may
  // hold a collective under way. The last member, so that it goes first.
  struct PluginsStop {
    ~PluginsStop();
    Session& session;
  };
  static constexpr const char* exchange_group = "optimizer";  // of the data-parallel ranks, for what it sends itself
  void place_layers(const config::RunConfig& config, Scheduler& scheduler);
  void attach_precision();
  void connect_groups(GroupProvider& groups);
  void connect_sums(GroupProvider& groups);
  // How many elements of a parameter the optimizer updates together. check_units() throws UserError where
  // tensor-parallel ranks would have parts of them.
  std::int64_t unit_of(const ParameterInfo& parameter) const;
  void check_units() const;
  void check_updates_within_step(const config::RunConfig& config) const;
  void check_local(const config::RunConfig& config);
  std::vector<int> fragments_of_flats(std::int64_t fragments) const;
  void check_own_exchange(const config::RunConfig& config) const;
  void connect_own_exchange(GroupProvider& groups);
  bool is_replicated(const FlatParameter& flat) const;
  bool splits_backward() const;
  void find_ties();
  // The flat parameters of ties that other stages hold too, by the tie's name; only those that an earlier stage counts.
  std::vector<int> flats_of_ties(bool counted_elsewhere) const;
  void connect_ties(GroupProvider& groups, const std::vector<Slice>& slices);
  void set_trainable(const std::function<bool(const std::string& parameter)>& trainable);
  void check_values();
  void make_buffers(const config::RunConfig& config);
  bool keeps_only_input(int layer, bool recompute) const;
  std::int64_t input_moves(int layer) const;
  void make_input_buffers(const Program& program);
  LayerOptions layer_options() const;
  // On the device, for the buffers that the program brings.
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
  // A parameter that several layers of the model share.
  struct Tie {
    ParameterInfo first_use;
    std::set<int> stages;  // that hold it; the first counts it
    std::set<int> chunks;  // that use it
  };
  std::map<std::string, Tie> ties_;  // by name
  StepPlan plan_;
  config::StepPolicy policy_;           // Plain too where there is nothing to look ahead to
  std::int64_t read_ahead_;             // bytes: see LayerOptions
  double updates_at_end_;               // the same
  std::vector<bool> sums_of_round_;     // see LayerOptions
  Program program_;                     // of a training step; empty for an evaluation
  Program pending_updates_;             // empty where none are deferred
  std::map<int, Program> evaluations_;  // by number of micro-batches
  Weights weights_ = Weights::Trained;  // that layers have
  Executor executor_;
  const PluginsStop plugins_stop_{*this};
};

}  // namespace strata::runtime
