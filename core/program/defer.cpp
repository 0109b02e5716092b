#include <algorithm>
#include <map>

#include "program/passes.hpp"

namespace strata::runtime {

namespace {

// By flat parameter, the place of the first instruction that uses its values or gradient.
std::map<int, std::size_t> first_uses(const Program& program, const ParameterUse& use) {
  std::map<int, std::size_t> first;
  for (std::size_t place = 0; place < program.size(); ++place) {
    const Instruction& instruction = program[place];
    if (is_compute(instruction.op))
      for (const int flat : use.of_layer(instruction.layer)) first.emplace(flat, place);
    else if (instruction.flat_parameter >= 0)
      first.emplace(instruction.flat_parameter, place);
  }
  return first;
}

}  // namespace

Program defer_updates(const Program& program, const ParameterUse& use) {
  const auto norm = std::ranges::find_if(program, [](const Instruction& one) { return one.op == Op::Norm; });
  const bool apart =
      std::none_of(norm, program.end(), [](const Instruction& one) { return one.op == Op::SumStatistics; });
  const std::map<int, std::size_t> first = first_uses(program, use);
  std::map<std::size_t, Program> updates;  // by the place in front of which they stand
  for (auto update = norm + 1; update != program.end(); ++update) {
    Program& here = updates[apart ? first.at(update->flat_parameter) : 0];
    here.push_back(*update);
    here.back().late = true;
  }
  Program result;
  for (std::size_t place = 0; place <= static_cast<std::size_t>(norm - program.begin()); ++place) {
    if (const auto here = updates.find(place); here != updates.end())
      result.insert(result.end(), here->second.begin(), here->second.end());
    result.push_back(program[place]);
  }
  return result;
}

Program pending_updates(const Program& deferred) {
  Program updates;
  for (const Instruction& instruction : deferred) {
    if (!instruction.late) continue;
    updates.push_back(instruction);
    updates.back().late = false;
  }
  return updates;
}

}  // namespace strata::runtime
