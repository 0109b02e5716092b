// A step from its first instruction to its last, and what is made of the next one in it.
#include <algorithm>

#include "plugins/plugin_call.hpp"
#include "step/executor.hpp"

namespace strata::step {

StepOutcome Executor::run(const program::Program& program, const StepInput& input, const StepInput* next) {
  const auto begin_of = [&](const auto& holds) { return std::ranges::find_if(program, holds); };
  const Instructions all(program);
  const Instructions ahead = all.first(
      static_cast<std::size_t>(begin_of([](const program::Instruction& i) { return !i.ahead; }) - program.begin()));
  const bool speculative =
      begin_of([](const program::Instruction& i) { return i.op == program::Op::StartNorm; }) != program.end();
  const auto norm = static_cast<std::size_t>(
      begin_of([&](const program::Instruction& i) { return speculative && i.op == program::Op::Norm; }) -
      program.begin());
  const bool made = take_ahead(input);
  begin(input);
  if (!made) carry_out_all(ahead, input);
  carry_out_all(all.subspan(ahead.size(), norm - ahead.size()), input);
  if (speculative) {
    if (next != nullptr) run_ahead(ahead, *next);
    carry_out_all(all.subspan(norm, 1), input);
    if (norm_state_ == NormState::AssumedWrongly) {
      forget_ahead();
      carry_out_all(all.subspan(norm + 1), input);
      if (next != nullptr) run_ahead(ahead, *next);
    }
  }
  return finish(input);
}

void Executor::carry_out_all(Instructions instructions, const StepInput& input) {
  for (const program::Instruction& instruction : instructions)
    if (see_instruction_)
      carry_out_and_show(instruction, input);
    else
      carry_out(instruction, input);
}

// [Note: what is made ahead] The forwards belong to the next step: their losses and statistics are summed for it, and
// random draws are its own. They read the loss scale as it is now; where the precision policy then changes it, they are
// made again.
void Executor::run_ahead(Instructions instructions, const StepInput& next) {
  Ahead& ahead = left_.emplace<Ahead>(next.step, loss_scale_,
                                      stage::ForwardSums::zeros(stage_.layers.statistics(), stage_.memory.tensors()));
  const auto swap_sums = [&] { std::swap(sums_, ahead.sums); };
  swap_sums();
  carry_out_all(instructions, next);
  swap_sums();
}

// Whether the step's first forwards have been made.
bool Executor::take_ahead(const StepInput& input) {
  const auto* const ahead = std::get_if<Ahead>(&left_);
  if (ahead == nullptr) return false;
  const double loss_scale = plugins::plugin_call(stage_.plugins.precision.name, "loss_scale()", stage_.place.rank,
                                                 [&] { return stage_.plugins.precision->loss_scale(); });
  if (ahead->step == input.step && ahead->loss_scale == loss_scale) return true;
  forget_ahead();
  return false;
}

void Executor::forget_ahead() {
  if (!std::holds_alternative<Ahead>(left_)) return;
  activations_.finish_transfers();
  activations_ = {};
  left_ = {};
}

}  // namespace strata::step
