#include "program/instruction.hpp"

#include <strata/format.hpp>

#include <array>

namespace strata::program {

UpdatedBy step_of(UpdatedBy by) {
  return by == UpdatedBy::Kept ? UpdatedBy::ThisStep : by;
}

bool is_compute(Op op) {
  return op == Op::Forward || computes_backward(op);
}
bool is_movement(Op op) {
  return op == Op::Fetch || op == Op::Await || op == Op::Store || op == Op::Settle;
}
bool is_send(Op op) {
  return op == Op::SendActivation || op == Op::SendGradient;
}
bool is_receive(Op op) {
  return op == Op::ReceiveActivation || op == Op::ReceiveGradient;
}
bool computes_backward(Op op) {
  return op == Op::Backward || op == Op::BackwardInput || op == Op::BackwardWeight;
}

Moved moved_by(const Instruction& movement) {
  if (movement.category == Category::Activation)
    return {movement.category, movement.layer, false, movement.input_buffer};
  return {movement.category, movement.flat_parameter, movement.kept(), movement.part};
}

std::string to_string(Op op) {
  constexpr std::array names_in_order = {"Forward",
                                         "Backward",
                                         "BackwardInput",
                                         "BackwardWeight",
                                         "SendActivation",
                                         "ReceiveActivation",
                                         "SendGradient",
                                         "ReceiveGradient",
                                         "Prefetch",
                                         "Gather",
                                         "Release",
                                         "BorrowGradient",
                                         "Reduce",
                                         "Fetch",
                                         "Await",
                                         "Store",
                                         "Settle",
                                         "FinishGradient",
                                         "SumReplicas",
                                         "SquareGradient",
                                         "StartNorm",
                                         "Norm",
                                         "SaveState",
                                         "RestoreState",
                                         "Measure",
                                         "SumStatistics",
                                         "Update",
                                         "Synchronize",
                                         "Publish",
                                         "Keep",
                                         "Stash",
                                         "Bind",
                                         "Drop"};
  return names_in_order.at(static_cast<std::size_t>(op));
}

std::string to_string(Phase phase) {
  constexpr std::array names_in_order = {"forward", "backward", "recompute"};
  return names_in_order.at(static_cast<std::size_t>(phase));
}

std::string to_string(const Instruction& instruction) {
  const Op op = instruction.op;
  std::string text = to_string(op);
  if (instruction.chunk >= 0) {
    text += format(" {}.{}", instruction.chunk, instruction.micro_batch);
  }
  if (instruction.ahead) text += " ahead";
  if (instruction.layer >= 0) text += format(" layer {}", instruction.layer);
  if (instruction.recompute) text += op == Op::Forward ? " keeping its input" : " with recompute";
  if (instruction.peer_stage >= 0) {
    text += (is_send(op) ? " to stage " : " from stage ") + std::to_string(instruction.peer_stage);
  }
  if (instruction.flat_parameter >= 0) text += format(" parameter {}", instruction.flat_parameter);
  if (instruction.late()) text += " late";
  if (instruction.kept()) text += " kept";
  if (is_movement(op)) text += " " + std::string(to_string(instruction.category));
  if (instruction.input_buffer >= 0) text += format(" buffer {}", instruction.input_buffer);
  if (instruction.part > 0) text += format(" part {}", instruction.part);
  if (instruction.contents) text += " with contents";
  if (instruction.changed) text += " changed";
  if (op == Op::Prefetch || op == Op::Gather || op == Op::Release) text += " for " + to_string(instruction.phase);
  if (op == Op::BorrowGradient || op == Op::Reduce) {
    text += format(" micro-batch {}", instruction.micro_batch);
    if (instruction.first) text += " first";
    if (instruction.last) text += " last";
  }
  if (instruction.round >= 0) text += format(" round {}", instruction.round);
  if (instruction.version < 0)
    text += " newest";
  else if (instruction.version > 0 || op == Op::Stash || op == Op::Bind || op == Op::Drop)
    text += format(" version {}", instruction.version);
  return text;
}

}  // namespace strata::program
