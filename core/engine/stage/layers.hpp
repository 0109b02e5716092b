#pragma once
#include <strata/model.hpp>
#include <strata/scheduler.hpp>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "program/lower.hpp"
#include "stage/forward_sums.hpp"
#include "stage/groups.hpp"
#include "stage/input_bytes.hpp"
#include "stage/input_parts.hpp"
#include "stage/linear.hpp"
#include "stage/memory.hpp"
#include "state/parameter_rules.hpp"

namespace strata::stage {

// One layer of this rank.
struct StageLayer {
  int number = 0;  // number in the whole model
  LayerInfo info;
  std::unique_ptr<Layer> layer;
  bool recompute = false;
};

// Parameter that several layers of the model share.
struct Tie {
  ParameterInfo first_use;
  std::set<int> stages;  // stages that hold it; the first counts it
  std::set<int> chunks;  // chunks that use it
};

// The model's layers: what every rank knows of all of them, and the ones that this rank computes.
class Layers {
 public:
  // Describes every layer, places them on the stages, builds this rank's and connects the stages. [collective] over the
  // run
  Layers(const Setup& setup, Memory& memory, Groups& groups);

  const std::vector<LayerInfo>& model() const { return model_; }
  int in_model() const { return static_cast<int>(model_.size()); }
  // Returns this rank's layers, ascending.
  const std::vector<StageLayer>& own() const { return own_; }
  // Throws Bug for a layer of another stage.
  StageLayer& of(int number) { return const_cast<StageLayer&>(std::as_const(*this).of(number)); }
  const StageLayer& of(int number) const;
  // Returns the first layer of the model with a parameter that is not frozen: earlier layers need no backward.
  int first_trainable() const { return first_trainable_; }
  // Returns shared parameters by the tie's name.
  const std::map<std::string, Tie>& ties() const { return ties_; }
  // Returns the names of the statistics of all layers.
  const StatisticNames& statistics() const { return statistics_; }
  // Returns the config's settings of a parameter. Only in a training.
  const state::ParameterSettings& settings(const std::string& parameter) const { return rules_->of(parameter); }

  // Returns the scheduler's orders for all stages.
  const program::StepPlan& plan() const { return plan_; }
  // Returns the number of updates of every chunk within the step; 0: one, at its end, after the norm of all ranks.
  int updates_within_step() const { return updates_within_step_; }
  bool splits_backward() const;

  Linear& linear() { return linear_; }
  // True if each rank of the tensor group keeps a part of the inputs of recomputed layers: see [Note: partitioned
  // activations].
  bool partitions_inputs() const { return partitions_inputs_; }
  // True if nothing but its input is kept of a layer for its backward.
  bool keeps_only_input(int layer, bool recompute) const { return recompute && layer > 0 && layer >= first_trainable_; }
  // Returns the shapes of a layer's input, for any layer of the model except the first.
  const std::vector<TensorShape>& input_shapes(int layer) const {
    return model_.at(static_cast<std::size_t>(layer - 1)).outputs;
  }
  // Returns the packing of a recomputed layer's saved input.
  InputBytes input_of(int layer) const;

 private:
  void describe(const Setup& setup);
  void plan_step(const Setup& setup, Memory& memory, Groups& groups);
  void build(const Setup& setup);
  void set_trainable(const Setup& setup);
  void find_ties();

  Linear linear_;
  int tensor_ranks_;
  bool partitions_inputs_;
  std::vector<LayerInfo> model_;
  StatisticNames statistics_;
  program::StepPlan plan_;
  int updates_within_step_ = 0;
  std::vector<StageLayer> own_;
  std::optional<state::ParameterRules> rules_;
  int first_trainable_ = 0;
  std::map<std::string, Tie> ties_;
  const PluginsStop stop_;
};

}  // namespace strata::stage
