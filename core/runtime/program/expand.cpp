#include "runtime/program/expand.hpp"

namespace strata::runtime {
namespace {

Op op_of(ComputeKind kind) {
  switch (kind) {
    case ComputeKind::Forward:
      return Op::Forward;
    case ComputeKind::BackwardInput:
      return Op::BackwardInput;
    case ComputeKind::BackwardWeight:
      return Op::BackwardWeight;
    case ComputeKind::Backward:
      break;
  }
  return Op::Backward;
}

}  // namespace

Program expand_layers(const std::vector<ComputeAction>& order, const Placement& placement,
                      const std::vector<bool>& checkpointed) {
  Program program;
  for (const ComputeAction& action : order) {
    const auto [begin, end] = placement.layers_of_chunk.at(static_cast<std::size_t>(action.chunk));
    for (int i = 0; i < end - begin; ++i) {
      Instruction instruction;
      instruction.op = op_of(action.kind);
      instruction.chunk = action.chunk;
      instruction.micro_batch = action.micro_batch;
      instruction.layer = instruction.op == Op::Forward ? begin + i : end - 1 - i;
      instruction.recompute =
          instruction.op != Op::BackwardWeight && checkpointed.at(static_cast<std::size_t>(instruction.layer));
      instruction.weight_version = action.weight_version;
      program.push_back(instruction);
    }
  }
  return program;
}

}  // namespace strata::runtime
