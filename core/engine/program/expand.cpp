#include "program/passes.hpp"

namespace strata::program {
namespace {

Op op_of(ComputeKind kind) {
  switch (kind) {
    case ComputeKind::Forward:
      return Op::Forward;
    case ComputeKind::BackwardInput:
      return Op::BackwardInput;
    case ComputeKind::BackwardWeight:
      return Op::BackwardWeight;
    case ComputeKind::Update:
    case ComputeKind::Backward:
      break;
  }
  return Op::Backward;
}

// If a backward directly follows its own forward, it starts with the layer that was computed last: recomputing that
// layer would not lower the peak memory.
bool turns_at_once(const std::vector<ComputeAction>& order, std::size_t forward) {
  if (forward + 1 == order.size()) return false;
  const ComputeAction& next = order[forward + 1];
  return order[forward].kind == ComputeKind::Forward &&
         (next.kind == ComputeKind::Backward || next.kind == ComputeKind::BackwardInput) &&
         next.chunk == order[forward].chunk && next.micro_batch == order[forward].micro_batch;
}

}  // namespace

Program expand_layers(const std::vector<ComputeAction>& order, const Placement& placement,
                      const std::vector<bool>& recompute) {
  Program program;
  for (std::size_t at = 0; at < order.size(); ++at) {
    const ComputeAction& action = order[at];
    if (action.kind == ComputeKind::Update) {
      program.push_back({.op = Op::Update, .chunk = action.chunk, .micro_batch = action.micro_batch});
      continue;
    }
    const bool turns = turns_at_once(order, at) || (at > 0 && turns_at_once(order, at - 1));
    const auto [begin, end] = placement.layers_of_chunk.at(static_cast<std::size_t>(action.chunk));
    for (int i = 0; i < end - begin; ++i) {
      const int layer = action.kind == ComputeKind::Forward ? begin + i : end - 1 - i;
      const bool recomputes = action.kind != ComputeKind::BackwardWeight && !(turns && layer == end - 1) &&
                              recompute.at(static_cast<std::size_t>(layer));
      program.push_back({.op = op_of(action.kind),
                         .chunk = action.chunk,
                         .micro_batch = action.micro_batch,
                         .layer = layer,
                         .recompute = recomputes,
                         .version = action.weight_version});
    }
  }
  return program;
}

}  // namespace strata::program
