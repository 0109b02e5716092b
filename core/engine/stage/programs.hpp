#pragma once
#include <map>
#include <utility>

#include "program/lower.hpp"
#include "stage/updates.hpp"

namespace strata::stage {

// Programs of this rank, and the buffers that only programs name.
class Programs {
 public:
  // Lowers the training step, and reserves room on the device for the buffers that it brings. [any rank]
  Programs(const Setup& setup, config::StepPolicy policy, const Layers& layers, Values& values, const Updates& updates);

  // Returns the program of a training step; empty for an evaluation.
  const program::Program& training() const { return training_; }
  // Returns the program of updates that are deferred to the next step; empty if there are none.
  const program::Program& pending_updates() const { return pending_updates_; }
  // Returns the program of a validation of so many micro-batches, at most a step's number.
  const program::Program& evaluation(int micro_batches);

  // Returns this rank's flat parameters, as the programs number them.
  const program::ParameterUse& parameter_use() const { return options_.parameters; }
  // Returns the buffer of a recomputed layer's input between forward and backward.
  const Buffer& input_buffer(const program::Instruction& compute) const {
    return *input_buffers_.at({compute.layer, compute.input_buffer});
  }

 private:
  void make_input_buffers(const Layers& layers);
  void make_room(const program::Program& program);

  memory::Buffers& buffers_;
  const program::StepPlan& plan_;
  int stage_;
  Lookahead lookahead_;
  program::LayerOptions options_;
  program::Program training_;
  program::Program pending_updates_;
  std::map<int, program::Program> evaluations_;           // by number of micro-batches
  std::map<std::pair<int, int>, Buffer*> input_buffers_;  // by layer and Instruction::input_buffer
};

}  // namespace strata::stage
