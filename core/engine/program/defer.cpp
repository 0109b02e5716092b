#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <span>

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

// The flat parameters of the first `share` of the elements that are updated, in the order of their updates.
std::set<int> first_part(std::span<const Instruction> updates, const ParameterUse& use, double share) {
  std::vector<int> in_order;
  std::set<int> seen;
  std::vector<std::int64_t> sizes;
  double all = 0.0, taken = 0.0;
  for (const Instruction& update : updates) {
    if (!seen.insert(update.flat_parameter).second) continue;
    in_order.push_back(update.flat_parameter);
    sizes.push_back(use.flat_parameter(update.flat_parameter).elements);
    all += static_cast<double>(sizes.back());
  }
  std::set<int> part;
  for (std::size_t i = 0; i < sizes.size() && taken + static_cast<double>(sizes[i]) / 2 < share * all; ++i) {
    taken += static_cast<double>(sizes[i]);
    part.insert(in_order[i]);
  }
  return part;
}

}  // namespace

Program defer_updates(const Program& program, const ParameterUse& use, double at_end) {
  const auto norm = std::ranges::find_if(program, [](const Instruction& one) { return one.op == Op::Norm; });
  const bool apart =
      std::none_of(norm, program.end(), [](const Instruction& one) { return one.op == Op::SumStatistics; });
  const std::map<int, std::size_t> first = first_uses(program, use);
  const std::set<int> stay = apart ? first_part({norm + 1, program.end()}, use, at_end) : std::set<int>{};
  std::map<std::size_t, Program> updates;  // by the place in front of which they stand
  for (auto update = norm + 1; update != program.end(); ++update) {
    if (stay.contains(update->flat_parameter)) continue;
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
  std::copy_if(norm + 1, program.end(), std::back_inserter(result),
               [&](const Instruction& update) { return stay.contains(update.flat_parameter); });
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
