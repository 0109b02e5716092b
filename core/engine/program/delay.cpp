#include <algorithm>
#include <map>
#include <set>

#include "program/passes.hpp"

namespace strata::runtime {

namespace {

// By flat parameter, the place of the last instruction before the end of the step that uses its values or gradient.
std::map<int, std::size_t> last_uses(const Program& program, const ParameterUse& use) {
  std::map<int, std::size_t> last;
  for (std::size_t place = 0; place < program.size(); ++place) {
    const Instruction& instruction = program[place];
    if (instruction.op == Op::FinishGradient || instruction.op == Op::Norm) break;
    if (is_compute(instruction.op))
      for (const int flat : use.of_layer(instruction.layer)) last[flat] = place;
    else if (instruction.flat_parameter >= 0)
      last[instruction.flat_parameter] = place;
  }
  return last;
}

}  // namespace

Program delay_updates(const Program& program, const ParameterUse& use) {
  const auto norm = std::ranges::find_if(program, [](const Instruction& one) { return one.op == Op::Norm; });
  const auto finish =
      std::find_if(program.begin(), norm, [](const Instruction& one) { return one.op == Op::FinishGradient; });
  const bool apart =
      std::none_of(norm, program.end(), [](const Instruction& one) { return one.op == Op::SumStatistics; });
  const std::map<int, std::size_t> last = last_uses(program, use);
  std::map<std::size_t, Program> updates;  // by the place that they follow
  std::set<int> updated;
  for (auto update = norm + 1; update != program.end(); ++update) {
    const auto before_finish = static_cast<std::size_t>(finish - program.begin()) - 1;
    const int flat = update->flat_parameter;
    Program& here = updates[apart ? last.at(flat) : before_finish];
    here.push_back(*update);
    here.back().kept = update->op == Op::Measure || update->op == Op::Update;
    updated.insert(flat);
  }
  Program result;
  for (std::size_t place = 0; place <= static_cast<std::size_t>(norm - program.begin()); ++place) {
    const Instruction& instruction = program[place];
    result.push_back(instruction);
    if (const auto here = updates.find(place); here != updates.end())
      result.insert(result.end(), here->second.begin(), here->second.end());
    if (instruction.op == Op::SquareGradient && updated.contains(instruction.flat_parameter))
      result.push_back({.op = Op::Keep, .flat_parameter = instruction.flat_parameter});
  }
  return result;
}

}  // namespace strata::runtime
