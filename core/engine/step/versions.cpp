// Copies of older weights, for what was under way when a stage updated within the step.
#include <c10/core/GradMode.h>

#include "stage/seconds_since.hpp"
#include "step/executor.hpp"

namespace strata::step {

void Executor::stash(const program::Instruction& instruction) {
  const stage::PartTimer timer(times_.optimizer);
  const c10::NoGradGuard no_grad;
  const FlatParameter& parameter = flat(instruction.flat_parameter);
  Slot* const slot = stage_.memory.slots().acquire(Category::Gathered, parameter.bytes());
  slot->last_use().block(StreamKind::Compute);
  slot->as(parameter.info().dtypes.parameter, parameter.elements())
      .copy_(parameter.memory().narrow(0, 0, parameter.elements()));
  copies_[{instruction.flat_parameter, instruction.version}] = slot;
}

// What autograd saved of the weights reads the memory that is bound during its backward.
void Executor::bind(const program::Instruction& instruction) {
  FlatParameter& parameter = flat(instruction.flat_parameter);
  if (instruction.version < 0) return parameter.bind(newest_.extract(instruction.flat_parameter).mapped());
  newest_.try_emplace(instruction.flat_parameter, parameter.memory());
  const Slot* const slot = copies_.at({instruction.flat_parameter, instruction.version});
  parameter.bind(slot->as(parameter.info().dtypes.parameter, parameter.elements()));
}

void Executor::drop(const program::Instruction& instruction) {
  Slot* const slot = copies_.extract({instruction.flat_parameter, instruction.version}).mapped();
  slot->last_use().record(StreamKind::Compute);
  stage_.memory.slots().release(slot);
}

}  // namespace strata::step
