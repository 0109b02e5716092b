#include "auto_offload/predicted_step.hpp"

#include <algorithm>

namespace strata::runtime {

namespace {

// The buffers that move together.
using Moved = std::tuple<Category, bool, int, int, int, int>;
Moved moved(const Instruction& instruction) {
  return {instruction.category, instruction.kept,  instruction.flat_parameter,
          instruction.part,     instruction.layer, instruction.input_buffer};
}

class Walk {
 public:
  Walk(const ParameterUse& use, const InstructionCosts& costs, const HomeSpeed& home)
      : use_(use), costs_(costs), home_(home) {}

  void carry_out(const Instruction& instruction) {
    switch (instruction.op) {
      case Op::Fetch:
        arrival_[moved(instruction)] = instruction.contents ? move(instruction, home_.read) : clock_;
        break;
      case Op::Await:
        wait_until(arrival_[moved(instruction)]);
        break;
      case Op::Store:
        if (instruction.changed) arrival_[moved(instruction)] = move(instruction, home_.write);
        break;
      case Op::Settle:
        wait_until(arrival_[moved(instruction)]);
        break;
      default: {
        const int flat = instruction.flat_parameter;
        const double seconds = costs_.of(instruction, flat < 0 ? 1 : use_.flat_parameter(flat).update_parts);
        clock_ += seconds;
        step_.computing += seconds;
      }
    }
  }

  PredictedStep end() {
    step_.seconds = clock_;
    return step_;
  }

 private:
  void wait_until(double time) { clock_ = std::max(clock_, time); }

  // When it has arrived.
  double move(const Instruction& instruction, double bytes_a_second) {
    const double seconds = static_cast<double>(use_.moved_bytes(instruction)) / bytes_a_second;
    free_ = std::max(free_, clock_) + seconds;
    step_.moving += seconds;
    if (!home_.in_background) clock_ = free_;
    return free_;
  }

  const ParameterUse& use_;
  const InstructionCosts& costs_;
  const HomeSpeed& home_;
  PredictedStep step_;
  double clock_ = 0.0;
  double free_ = 0.0;  // when the home has moved all that was started
  std::map<Moved, double> arrival_;
};

}  // namespace

InstructionCosts::Key InstructionCosts::key(const Instruction& instruction) {
  return {instruction.op, instruction.layer, instruction.flat_parameter,
          instruction.op == Op::Reduce && instruction.last, computes_backward(instruction.op) && instruction.recompute};
}

double InstructionCosts::median(const Key& key) const {
  const auto found = times_.find(key);
  if (found == times_.end()) return 0.0;
  std::vector<double> times = found->second;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return *middle;
}

void InstructionCosts::add(const Instruction& instruction, int update_parts, double seconds) {
  if (is_movement(instruction.op)) return;
  times_[key(instruction)].push_back(instruction.op == Op::Update ? seconds * update_parts : seconds);
}

double InstructionCosts::of(const Instruction& instruction, int update_parts) const {
  const Key own = key(instruction);
  if (times_.contains(own)) return median(own) / (instruction.op == Op::Update ? update_parts : 1);
  if (!computes_backward(instruction.op)) return 0.0;
  Key other = own;
  std::get<4>(other) = !std::get<4>(own);
  const double forward = median({Op::Forward, instruction.layer, instruction.flat_parameter, false, false});
  return std::max(median(other) + (instruction.recompute ? forward : -forward), 0.0);
}

PredictedStep predict_step(const Program& program, const ParameterUse& use, const InstructionCosts& costs,
                           const HomeSpeed& home) {
  Walk walk(use, costs, home);
  for (const Instruction& instruction : program) walk.carry_out(instruction);
  return walk.end();
}

}  // namespace strata::runtime
