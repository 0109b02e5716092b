#pragma once
#include <strata/optimizer.hpp>
#include <strata/own_exchange.hpp>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stage/gradient_path.hpp"
#include "stage/local_training.hpp"
#include "stage/values.hpp"
#include "state/host_copies.hpp"
#include "state/optimizer_state.hpp"
#include "state/parameter_sums.hpp"

namespace strata::stage {

// What updates this rank's slices, and with whom.
class Updates {
 public:
  // Allocates master weights and optimizer state, and connects the groups that the optimizer asks for. Throws UserError
  // for features that cannot be combined. [collective] over the run
  Updates(const Setup& setup, config::StepPolicy policy, Memory& memory, Groups& groups, Layers& layers,
          Values& values);

  state::OptimizerState& state() { return *state_; }
  const state::OptimizerState& state() const { return *state_; }
  // Returns true for each round of an update that begins with sums over whole parameters.
  const std::vector<bool>& sums_of_round() const { return sums_of_round_; }
  // Returns those sums; null in an evaluation.
  const state::ParameterSums* sums() const { return sums_.get(); }
  Group* sums_group() const { return sums_group_; }  // ranks of this stage; null if the optimizer has no sums
  // Returns the ranks of other stages that hold a flat parameter too, with this one; null: no other stage does.
  Group* holders(int flat_parameter) const;
  // Returns flat parameters whose gradient other ranks have parts of, besides those that the partitioner adds up.
  std::vector<int> replicated() const;
  const std::optional<LocalTraining>& local() const { return local_; }  // set with local training

  // Returns where gradients end and what updates by them, in a step after `updates` updates. Must be called at the
  // beginning of each step.
  GradientPath& begin(std::int64_t updates);
  // Returns the path of a rank's own gradients; null without an optimizer that does its own communication.
  const OwnGradients* own_gradients() const { return own_.get(); }
  OptimizerCalls& calls() { return *calls_; }

  // Returns the options of the StepScalars' tensors, which are on the device of the optimizer's updates.
  at::TensorOptions scalar_options() const;
  // Scalars of the last Norm, so that a kept gradient is applied with its own step's scalars. Before the first Norm
  // there is nothing to apply. For updates within the step, the scalars at its beginning.
  StepScalars scalars;

 private:
  void connect_sums(const Setup& setup, Groups& groups, const Layers& layers);
  void train_locally(const Setup& setup, const Layers& layers);
  void connect_ties(const Setup& setup, Memory& memory, Groups& groups, const Layers& layers,
                    const std::vector<Slice>& slices);
  void connect_own_exchange(const Setup& setup, Memory& memory, Groups& groups);
  void make_state(const Setup& setup, config::StepPolicy policy, const Layers& layers,
                  const std::vector<Slice>& slices);

  Values& values_;
  OwnExchangeHost& exchange_;
  Group* tensor_;
  bool sequence_parallel_;
  std::vector<bool> sums_of_round_;
  Group* sums_group_ = nullptr;
  std::optional<LocalTraining> local_;
  std::map<int, Group*> holders_;
  std::unique_ptr<state::OptimizerState> state_;
  std::unique_ptr<state::ParameterSums> sums_;
  std::unique_ptr<state::HostCopies> host_copies_;  // null if the optimizer updates on the device
  std::unique_ptr<OptimizerCalls> calls_;
  std::unique_ptr<SummedGradients> summed_;
  std::unique_ptr<OwnGradients> own_;
  const PluginsStop stop_;
};

}  // namespace strata::stage
