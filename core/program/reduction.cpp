#include "program/reduction.hpp"

#include <algorithm>
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
    Instruction instruction;
    instruction.op = op;
    instruction.flat_parameter = index;
    instruction.micro_batch = micro_batch;
    instruction.first = reduced[index] == 0;
    instruction.last = reduced[index] == contributions.micro_batches.at(index) - 1;
    return instruction;
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

Program add_step(const Program& program, const ParameterUse& use, const std::vector<bool>& sums_of_round) {
  std::vector<int> in_order;  // the trainable flat parameters
  for (const Instruction& instruction : program) {
    if (instruction.op != Op::Forward) continue;
    for (const int index : use.of_layer(instruction.layer))
      if (use.flat_parameter(index).trainable && std::find(in_order.begin(), in_order.end(), index) == in_order.end())
        in_order.push_back(index);
  }
  Program result = program;
  const auto append = [&](Op op, int round, int flat_parameter) {
    Instruction& instruction = result.emplace_back();
    instruction.op = op;
    instruction.round = round;
    instruction.flat_parameter = flat_parameter;
  };
  append(Op::FinishGradients, -1, -1);
  append(Op::Norm, -1, -1);
  for (int round = 0; round < static_cast<int>(sums_of_round.size()); ++round) {
    if (sums_of_round[static_cast<std::size_t>(round)]) append(Op::SumStatistics, round, -1);
    for (const int index : in_order) append(Op::Update, round, index);
  }
  for (const int index : in_order) append(Op::Publish, -1, index);
  return result;
}

}  // namespace strata::runtime
