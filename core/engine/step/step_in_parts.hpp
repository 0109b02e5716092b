#pragma once
#include <cstddef>
#include <optional>
#include <vector>

#include "step/executor.hpp"

namespace strata::step {

// A training step run incrementally, so that the caller can act between micro-batches: the forward of one micro-batch,
// its backward, the next forward, ..., the update. The step's program is cut before each backward, each following
// forward and the end: the same instructions in the same order. Calls in another order throw Bug.
class StepInParts {
 public:
  // Cuts a program. Empty if the program has another order of computation or waits for other stages. Both arguments
  // must outlive the result.
  static std::optional<StepInParts> cut(const program::Program& program, Executor& executor);

  int micro_batches() const { return static_cast<int>(cuts_.size()); }
  int forwards() const { return forwards_; }    // forwards of the current step
  int backwards() const { return backwards_; }  // backwards of the current step

  // Begins a step, before the first forward. `input` has no micro-batches and no valid_tokens.
  void begin(StepInput input);
  // Runs a micro-batch's forward and returns its loss sum, on the device. [collective] as the program's gathers are.
  at::Tensor forward(const MicroBatch& batch);
  void backward();
  // Ends the step, after all backwards. `valid_tokens`: as in StepInput. [collective] over the run; blocks the host.
  StepOutcome finish(std::int64_t valid_tokens);
  // Returns the step's input, as given to begin() and completed since.
  const StepInput& input() const { return input_; }

 private:
  // Indices at which a micro-batch's backward begins and ends.
  struct Cut {
    std::size_t backward = 0;
    std::size_t end = 0;
  };
  StepInParts(const program::Program& program, Executor& executor, std::vector<Cut> cuts)
      : program_(&program), executor_(&executor), cuts_(std::move(cuts)) {}
  void carry_out_until(std::size_t end);

  const program::Program* program_;
  Executor* executor_;
  std::vector<Cut> cuts_;  // cuts by micro-batch
  StepInput input_;
  std::size_t next_ = 0;  // next instruction
  int forwards_ = 0;
  int backwards_ = 0;
};

}  // namespace strata::step
