#include "program/passes.hpp"

namespace strata::runtime {

Program synchronize(const Program& program) {
  Program result;
  for (const Instruction& instruction : program) {
    if (instruction.op == Op::Publish)
      result.push_back({.op = Op::Synchronize, .flat_parameter = instruction.flat_parameter});
    result.push_back(instruction);
  }
  return result;
}

}  // namespace strata::runtime
