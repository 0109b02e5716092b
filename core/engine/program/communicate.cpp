#include "program/passes.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <tuple>

namespace strata::program {
namespace {

struct Communication {
  std::int64_t ready = 0;  // when its data is ready in the simulated run
  bool gradient = false;
  int from_chunk = 0;
  Instruction instruction;

  // The sort key in the list of all transfers, equal at both ends.
  auto key() const { return std::tuple(ready, gradient, from_chunk, instruction.micro_batch); }
};

int stage_of(const Placement& placement, int chunk) {
  return placement.stage_of_chunk.at(static_cast<std::size_t>(chunk));
}

// The sends and receives of `stage` that follow from one action of any stage.
void append_communication(const TimedAction& timed, int stage, const Placement& placement,
                          std::vector<Communication>& result) {
  const ComputeAction& action = timed.action;
  if (action.kind == ComputeKind::BackwardWeight || action.kind == ComputeKind::Update) return;
  const bool gradient = action.kind != ComputeKind::Forward;
  const int to_chunk = gradient ? action.chunk - 1 : action.chunk + 1;
  if (to_chunk < 0 || to_chunk >= static_cast<int>(placement.stage_of_chunk.size())) return;
  const int from = stage_of(placement, action.chunk);
  const int to = stage_of(placement, to_chunk);
  if (from == to || (from != stage && to != stage)) return;
  const bool sends = from == stage;
  const Op op = sends ? (gradient ? Op::SendGradient : Op::SendActivation)
                      : (gradient ? Op::ReceiveGradient : Op::ReceiveActivation);
  result.push_back({timed.end,
                    gradient,
                    action.chunk,
                    {.op = op,
                     .chunk = sends ? action.chunk : to_chunk,
                     .micro_batch = action.micro_batch,
                     .peer_stage = sends ? to : from}});
}

// All sends and receives of `stage`, in the order of the list.
std::vector<Communication> communications_of(int stage, const Timeline& timeline, const Placement& placement) {
  std::vector<Communication> result;
  for (const auto& actions : timeline.stages) {
    for (const TimedAction& timed : actions) append_communication(timed, stage, placement, result);
  }
  std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.key() < b.key(); });
  return result;
}

}  // namespace

Program add_communication(const Program& program, int stage, const Timeline& timeline, const Placement& placement) {
  const std::vector<Communication> communications = communications_of(stage, timeline, placement);
  auto next = communications.begin();
  auto compute = program.begin();
  Program result;
  for (const TimedAction& timed : timeline.stages.at(static_cast<std::size_t>(stage))) {
    for (; next != communications.end() && is_receive(next->instruction.op) && next->ready <= timed.end; ++next) {
      result.push_back(next->instruction);
    }
    const auto [begin, end] = placement.layers_of_chunk.at(static_cast<std::size_t>(timed.action.chunk));
    const int instructions = timed.action.kind == ComputeKind::Update ? 1 : end - begin;
    strata_check(program.end() - compute >= instructions, "the program is not the expanded order of the simulated run");
    result.insert(result.end(), compute, compute + instructions);
    compute += instructions;
    for (; next != communications.end() && is_send(next->instruction.op) && next->ready == timed.end; ++next) {
      result.push_back(next->instruction);
    }
  }
  // Results of another stage in this part of the step that this one uses in the next.
  for (; next != communications.end() && is_receive(next->instruction.op); ++next) result.push_back(next->instruction);
  strata_check(compute == program.end() && next == communications.end(), "a communication has no place in the program");
  return result;
}

}  // namespace strata::program
