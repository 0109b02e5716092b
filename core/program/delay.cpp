#include <algorithm>

#include "program/passes.hpp"

namespace strata::runtime {

Program delay_updates(const Program& program) {
  const auto find = [&](Op op) {
    return std::ranges::find_if(program, [op](const Instruction& instruction) { return instruction.op == op; });
  };
  const auto norm = find(Op::Norm), finish = std::min(find(Op::FinishGradient), norm);
  Program result(program.begin(), finish), keeps;
  for (auto update = norm + 1; update != program.end(); ++update) {
    result.push_back(*update);
    result.back().kept = update->op == Op::Measure || update->op == Op::Update;
    if (update->op == Op::Publish) keeps.push_back({.op = Op::Keep, .flat_parameter = update->flat_parameter});
  }
  result.insert(result.end(), finish, norm + 1);
  result.insert(result.end(), keeps.begin(), keeps.end());
  return result;
}

}  // namespace strata::runtime
