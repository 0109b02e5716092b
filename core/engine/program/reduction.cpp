#include "program/passes.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace strata::program {
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

}  // namespace strata::program
