#include "program/passes.hpp"

#include <algorithm>
#include <map>
#include <set>
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

// Flat parameters in the order of their first uses.
struct FirstUses {
  std::vector<int> in_order;
  std::set<int> seen;

  void add(int index) {
    if (seen.insert(index).second) in_order.push_back(index);
  }
  bool have(int index) const { return seen.contains(index); }
};

}  // namespace

Program add_reduction(const Program& program, const ParameterUse& use, int updates) {
  const Contributions contributions = find_contributions(program, use);
  std::map<int, int> reduced;  // flat parameter: how many micro-batches so far
  std::map<int, bool> borrowed;
  const auto about = [&](Op op, int index, int micro_batch) {
    const int of_update = contributions.micro_batches.at(index) / std::max(updates, 1);
    return Instruction{.op = op,
                       .micro_batch = micro_batch,
                       .flat_parameter = index,
                       .first = reduced[index] % of_update == 0,
                       .last = reduced[index] % of_update == of_update - 1};
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
  FirstUses all;                      // the trainable flat parameters
  std::map<int, FirstUses> of_chunk;  // those of them that a chunk's layers use
  for (const Instruction& instruction : program) {
    if (instruction.op != Op::Forward) continue;
    for (const int index : use.of_layer(instruction.layer)) {
      if (!use.flat_parameter(index).trainable) continue;
      all.add(index);
      of_chunk[instruction.chunk].add(index);
    }
  }
  Program result;
  const auto for_each = [&](const std::vector<int>& parameters, Op op, int round = -1, int version = 0) {
    for (const int index : parameters)
      result.push_back({.op = op, .flat_parameter = index, .round = round, .version = version});
  };
  std::vector<int> reduced;  // for the last time, and not finished yet
  const auto finish = [&](const FirstUses& parameters) {
    std::erase_if(reduced, [&](int index) {
      if (!parameters.have(index)) return false;
      for_each({index}, Op::FinishGradient);
      return true;
    });
  };
  const auto update = [&](const std::vector<int>& parameters, int version) {
    for (int round = 0; round < static_cast<int>(sums_of_round.size()); ++round) {
      if (sums_of_round[static_cast<std::size_t>(round)]) {
        for_each(parameters, Op::Measure, round, version);
        result.push_back({.op = Op::SumStatistics, .round = round});
      }
      for_each(parameters, Op::Update, round, version);
    }
    for_each(parameters, Op::Publish);
  };
  std::map<int, int> updates;  // by chunk
  for (const Instruction& instruction : program) {
    if (instruction.op == Op::Update) {
      const FirstUses& parameters = of_chunk[instruction.chunk];
      finish(parameters);
      for (const int index : replicated)
        if (parameters.have(index)) for_each({index}, Op::SumReplicas);
      for_each(parameters.in_order, Op::SquareGradient);
      update(parameters.in_order, updates[instruction.chunk]++);
      continue;
    }
    result.push_back(instruction);
    if (instruction.op == Op::Reduce && instruction.last) reduced.push_back(instruction.flat_parameter);
  }
  finish(all);
  if (updates.empty()) {
    for_each(replicated, Op::SumReplicas);
    for_each(all.in_order, Op::SquareGradient);
  }
  result.push_back({.op = Op::Norm});
  if (updates.empty()) update(all.in_order, 0);
  return result;
}

}  // namespace strata::runtime
