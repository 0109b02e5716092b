#include "program/parameter_use.hpp"

namespace strata::program {

bool writes_gradient(const Instruction& instruction, const FlatParameterSize& parameter) {
  if (!parameter.trainable) return false;
  return instruction.op == Op::Backward ||
         instruction.op == (parameter.deferred ? Op::BackwardWeight : Op::BackwardInput);
}

Program weave(const Program& program, const Append& before, const Append& after) {
  Program result;
  std::size_t position = 0;
  for (std::size_t i = 0; i < program.size(); ++i) {
    const Instruction& instruction = program[i];
    if (!is_compute(instruction.op)) {
      result.push_back(instruction);
      continue;
    }
    before(position, instruction, result);
    result.push_back(instruction);
    while (i + 1 < program.size() && is_send(program[i + 1].op)) result.push_back(program[++i]);
    after(position, instruction, result);
    ++position;
  }
  return result;
}

}  // namespace strata::program
