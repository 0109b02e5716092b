#pragma once
#include <cstddef>
#include <optional>
#include <vector>

#include "step/executor.hpp"

namespace strata::runtime {

// A training step run incrementally, so that the caller can act between micro-batches: the forward of one micro-batch,
// its backward, the next forward, ..., the update. It is the step's program, cut before each backward, each following
// forward and the end: the same instructions in the same order. Calls in another order throw Bug.
class StepInParts {
 public:
  // Nothing when the program cannot be cut: it computes in another order, or it waits for other stages. Both arguments
  // must outlive the result.
  static std::optional<StepInParts> cut(const Program& program, Executor& executor);

  int micro_batches() const { return static_cast<int>(cuts_.size()); }
  int forwards() const { return forwards_; }    // of the step under way
  int backwards() const { return backwards_; }  // of the step under way

  // Before the first forward. `input` has no micro-batches and no valid_tokens.
  void begin(StepInput input);
  // [collective] as the program's gathers are. Returns the micro-batch's loss sum, on the device.
  at::Tensor forward(const MicroBatch& batch);
  void backward();
  // After all backwards. `valid_tokens`: StepInput's. [collective] over the run; blocks the host.
  StepOutcome finish(std::int64_t valid_tokens);
  // The step's, as given to begin() and completed since.
  const StepInput& input() const { return input_; }

 private:
  // Where the instructions of a micro-batch's backward begin, and those of what follows it.
  struct Cut {
    std::size_t backward = 0;
    std::size_t end = 0;
  };
  StepInParts(const Program& program, Executor& executor, std::vector<Cut> cuts)
      : program_(&program), executor_(&executor), cuts_(std::move(cuts)) {}
  void carry_out_until(std::size_t end);

  const Program* program_;
  Executor* executor_;
  std::vector<Cut> cuts_;  // by micro-batch
  StepInput input_;
  std::size_t next_ = 0;  // instruction
  int forwards_ = 0;
  int backwards_ = 0;
};

}  // namespace strata::runtime
