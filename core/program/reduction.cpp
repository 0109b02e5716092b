#include "program/passes.hpp"

#include <map>
#include <utility>

namespace strata::runtime {
namespace {

struct Contributions {
  std::map<std::pair<int, int>, std::size_t>
      last;                          // (flat parameter, micro-batch): the position of its last contribution
  std::map<int, int> micro_batches;  // flat parameter: how many micro-batches contribute
};

Contributions find_contributions(const Program& program, const ParameterUse& use) {
  Contributions found;
  std::size_t position = 0;
  for (const Instruction& instruction : program) {
    if (!is_compute(instruction.op)) continue;
    for (const int index : use.of_layer(instruction.layer))
      if (writes_gradient(instruction, use.flat_parameter(index)))
        found.last[{index, instruction.micro_batch}] = position;
    ++position;
  }
  for (const auto& [key, unused] : found.last) ++found.micro_batches[key.first];
  return found;
}

}  // namespace

Program add_reduction(const Program& program, const ParameterUse& use) {
  const Contributions contributions = find_contributions(program, use);
  std::map<int, int> reduced;  // flat parameter: how many micro-batches so far
  std::map<int, bool> borrowed;
  const auto about = [&](Op op, int index, int micro_batch) {
    return Instruction{.op = op,
                       .micro_batch = micro_batch,
                       .flat_parameter = index,
                       .first = reduced[index] == 0,
                       .last = reduced[index] == contributions.micro_batches.at(index) - 1};
  };
  const auto before = [&](std::size_t, const Instruction& compute, Program& result) {
    for (const int index : use.of_layer(compute.layer)) {
      if (!writes_gradient(compute, use.flat_parameter(index)) || borrowed[index]) continue;
      result.push_back(about(Op::BorrowGradient, index, compute.micro_batch));
      borrowed[index] = true;
    }
  };
  const auto after = [&](std::size_t position, const Instruction& compute, Program& result) {
    for (const int index : use.of_layer(compute.layer)) {
      if (!writes_gradient(compute, use.flat_parameter(index)) ||
          contributions.last.at({index, compute.micro_batch}) != position)
        continue;
      result.push_back(about(Op::Reduce, index, compute.micro_batch));
      ++reduced[index];
      borrowed[index] = false;
    }
  };
  return weave(program, before, after);
}

Program add_step(const Program& program, const ParameterUse& use, const std::vector<int>& replicated,
                 const std::vector<bool>& sums_of_round) {
  std::vector<int> in_order;  // the trainable flat parameters
  for (const Instruction& instruction : program) {
    if (instruction.op != Op::Forward) continue;
    for (const int index : use.of_layer(instruction.layer))
      if (use.flat_parameter(index).trainable && std::find(in_order.begin(), in_order.end(), index) == in_order.end())
        in_order.push_back(index);
  }
  Program result = program;
  const auto for_each = [&](const std::vector<int>& parameters, Op op, int round = -1) {
    for (const int index : parameters) result.push_back({.op = op, .flat_parameter = index, .round = round});
  };
  for (const Instruction& instruction : program)
    if (instruction.op == Op::Reduce && instruction.last) for_each({instruction.flat_parameter}, Op::FinishGradient);
  for_each(replicated, Op::SumReplicas);
  for_each(in_order, Op::SquareGradient);
  result.push_back({.op = Op::Norm});
  for (int round = 0; round < static_cast<int>(sums_of_round.size()); ++round) {
    if (sums_of_round[static_cast<std::size_t>(round)]) {
      for_each(in_order, Op::Measure, round);
      result.push_back({.op = Op::SumStatistics, .round = round});
    }
    for_each(in_order, Op::Update, round);
  }
  for_each(in_order, Op::Publish);
  return result;
}

}  // namespace strata::runtime
