#include "step/step_in_parts.hpp"

#include <strata/error.hpp>

namespace strata::step {

std::optional<StepInParts> StepInParts::cut(const program::Program& program, Executor& executor) {
  std::vector<Cut> cuts;
  bool in_backward = true;  // as though one had ended before the first forward
  for (std::size_t i = 0; i < program.size() && program[i].op != program::Op::Norm; ++i) {
    const program::Instruction& instruction = program[i];
    if (program::is_send(instruction.op) || program::is_receive(instruction.op)) return {};
    if (!program::is_compute(instruction.op)) continue;
    if (instruction.op == program::Op::Forward && in_backward) {
      cuts.emplace_back();
      in_backward = false;
    } else if (program::computes_backward(instruction.op) && !in_backward) {
      cuts.back().backward = i;
      in_backward = true;
    }
    if (instruction.micro_batch + 1 != static_cast<int>(cuts.size())) return {};
    cuts.back().end = i + 1;
  }
  // What follows a backward and computes nothing, such as the reduction of its gradients, belongs to it.
  for (Cut& cut : cuts)
    while (!program::is_compute(program[cut.end].op) && program[cut.end].op != program::Op::Norm) ++cut.end;
  return StepInParts(program, executor, std::move(cuts));
}

void StepInParts::carry_out_until(std::size_t end) {
  for (; next_ < end; ++next_) executor_->carry_out((*program_)[next_], input_);
}

void StepInParts::begin(StepInput input) {
  strata_check(input.batches.empty() && next_ == 0, "a step begins after the end of another, without micro-batches");
  input_ = std::move(input);
  executor_->begin(input_);
}

at::Tensor StepInParts::forward(const MicroBatch& batch) {
  strata_check(forwards_ == backwards_ && forwards_ < micro_batches(),
               "a forward follows the backward of the micro-batch before");
  input_.batches.push_back(batch);
  carry_out_until(cuts_[static_cast<std::size_t>(forwards_)].backward);
  ++forwards_;
  return executor_->micro_batch_loss();
}

void StepInParts::backward() {
  strata_check(forwards_ == backwards_ + 1, "a backward follows its forward");
  carry_out_until(cuts_[static_cast<std::size_t>(backwards_)].end);
  ++backwards_;
}

StepOutcome StepInParts::finish(std::int64_t valid_tokens) {
  strata_check(backwards_ == micro_batches(), "a step ends after the backward of every micro-batch");
  input_.valid_tokens = valid_tokens;
  carry_out_until(program_->size());
  const StepOutcome outcome = executor_->finish(input_);
  input_.batches.clear();
  next_ = 0;
  forwards_ = 0;
  backwards_ = 0;
  return outcome;
}

}  // namespace strata::step
