#include "plan/predicted_step.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <set>

namespace strata::plan {

namespace {

// A message between stages: whether it is a gradient, the receiving chunk, the micro-batch.
using Sent = std::tuple<bool, int, int>;

// The state of the other stages, as seen by one.
struct Meeting {
  std::map<Sent, double> sent;  // when
  std::size_t at_norm = 0;      // stages that have come
  double norm = 0.0;            // when the last of them came
};

class Walk {
 public:
  Walk(const StageOfStep& stage, std::size_t stages, Meeting& meeting)
      : program_(stage.program),
        use_(stage.use),
        costs_(stage.costs),
        home_(stage.home),
        stages_(stages),
        meeting_(meeting) {}

  // As far as it can without another stage. Whether it came anywhere.
  bool go_on() {
    const std::size_t begin = place_;
    for (; place_ < program_.size(); ++place_)
      if (!carry_out(program_[place_])) break;
    return place_ > begin;
  }
  bool ended() const { return place_ == program_.size(); }

  PredictedStep end() {
    step_.seconds = clock_;
    return step_;
  }

 private:
  // False: it waits for another stage.
  bool carry_out(const program::Instruction& instruction) {
    const int chunk = instruction.chunk, micro_batch = instruction.micro_batch;
    switch (instruction.op) {
      case program::Op::SendActivation:
        meeting_.sent[{false, chunk + 1, micro_batch}] = clock_;
        break;
      case program::Op::SendGradient:
        meeting_.sent[{true, chunk - 1, micro_batch}] = clock_;
        break;
      case program::Op::ReceiveActivation:
      case program::Op::ReceiveGradient:  // what computes with it waits
        awaited_.insert({instruction.op == program::Op::ReceiveGradient, chunk, micro_batch});
        break;
      case program::Op::Forward:
      case program::Op::Backward:
      case program::Op::BackwardInput: {
        const Sent needed{instruction.op != program::Op::Forward, chunk, micro_batch};
        if (awaited_.contains(needed)) {
          const auto found = meeting_.sent.find(needed);
          if (found == meeting_.sent.end()) return false;
          wait_until(found->second);
          awaited_.erase(needed);
        }
        take_time(instruction);
        break;
      }
      case program::Op::Norm:
        if (!came_) {
          came_ = true;
          ++meeting_.at_norm;
          meeting_.norm = std::max(meeting_.norm, clock_);
        }
        if (meeting_.at_norm < stages_) return false;
        wait_until(meeting_.norm);
        take_time(instruction);
        break;
      case program::Op::Fetch:
        arrival_[program::moved_by(instruction)] = instruction.contents ? move(instruction, home_.read) : clock_;
        break;
      case program::Op::Await:
        wait_until(arrival_[program::moved_by(instruction)]);
        break;
      case program::Op::Store:
        if (instruction.changed) arrival_[program::moved_by(instruction)] = move(instruction, home_.write);
        break;
      case program::Op::Settle:
        wait_until(arrival_[program::moved_by(instruction)]);
        break;
      default:
        take_time(instruction);
    }
    return true;
  }

  void take_time(const program::Instruction& instruction) {
    const int flat = instruction.flat_parameter;
    const double seconds = costs_.of(instruction, flat < 0 ? 1 : use_.flat_parameter(flat).update_parts);
    clock_ += seconds;
    step_.computing += seconds;
  }
  void wait_until(double time) { clock_ = std::max(clock_, time); }

  // When it has arrived.
  double move(const program::Instruction& instruction, double bytes_a_second) {
    const double seconds = static_cast<double>(use_.moved_bytes(instruction)) / bytes_a_second;
    free_ = std::max(free_, clock_) + seconds;
    step_.moving += seconds;
    if (!home_.in_background) clock_ = free_;
    return free_;
  }

  const program::Program& program_;
  const program::ParameterUse& use_;
  const InstructionCosts& costs_;
  const HomeSpeed& home_;
  const std::size_t stages_;
  Meeting& meeting_;
  std::size_t place_ = 0;
  bool came_ = false;  // to the Norm
  std::set<Sent> awaited_;
  PredictedStep step_;
  double clock_ = 0.0;
  double free_ = 0.0;  // when the home has moved all that was started
  std::map<program::Moved, double> arrival_;
};

}  // namespace

InstructionCosts::Key InstructionCosts::key(const program::Instruction& instruction) {
  return {instruction.op, instruction.layer, instruction.flat_parameter,
          instruction.op == program::Op::Reduce && instruction.last,
          program::computes_backward(instruction.op) && instruction.recompute};
}

double InstructionCosts::median(const Key& key) const {
  const auto found = times_.find(key);
  if (found == times_.end()) return 0.0;
  std::vector<double> times = found->second;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return *middle;
}

void InstructionCosts::add(const program::Instruction& instruction, int update_parts, double seconds) {
  if (program::is_movement(instruction.op)) return;
  times_[key(instruction)].push_back(instruction.op == program::Op::Update ? seconds * update_parts : seconds);
}

double InstructionCosts::of(const program::Instruction& instruction, int update_parts) const {
  const Key own = key(instruction);
  if (times_.contains(own)) return median(own) / (instruction.op == program::Op::Update ? update_parts : 1);
  if (!program::computes_backward(instruction.op)) return 0.0;
  Key other = own;
  std::get<4>(other) = !std::get<4>(own);
  const double forward = median({program::Op::Forward, instruction.layer, instruction.flat_parameter, false, false});
  return std::max(median(other) + (instruction.recompute ? forward : -forward), 0.0);
}

std::vector<std::int64_t> InstructionCosts::numbers() const {
  std::vector<std::int64_t> all;
  for (const auto& [key, times] : times_) {
    const auto& [op, layer, flat, last, recompute] = key;
    all.insert(all.end(), {static_cast<std::int64_t>(op), layer, flat, last ? 1 : 0, recompute ? 1 : 0,
                           static_cast<std::int64_t>(1e9 * median(key))});
  }
  return all;
}

InstructionCosts InstructionCosts::from(std::span<const std::int64_t> numbers) {
  InstructionCosts costs;
  for (std::size_t at = 0; at + numbers_of_one <= numbers.size(); at += numbers_of_one) {
    const auto one = numbers.subspan(at, numbers_of_one);
    costs.times_[{static_cast<program::Op>(one[0]), static_cast<int>(one[1]), static_cast<int>(one[2]), one[3] != 0,
                  one[4] != 0}] = {1e-9 * static_cast<double>(one[5])};
  }
  return costs;
}

PredictedStep predict_step(std::span<const StageOfStep> stages) {
  Meeting meeting;
  std::vector<Walk> walks;
  walks.reserve(stages.size());
  for (const StageOfStep& stage : stages) walks.emplace_back(stage, stages.size(), meeting);
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (Walk& walk : walks) goes_on = walk.go_on() || goes_on;
  }
  PredictedStep step;
  for (Walk& walk : walks) {
    strata_check(walk.ended(), "the predicted stages wait for each other");
    const PredictedStep one = walk.end();
    step.seconds = std::max(step.seconds, one.seconds);
    step.computing = std::max(step.computing, one.computing);
    step.moving = std::max(step.moving, one.moving);
  }
  return step;
}

}  // namespace strata::plan
