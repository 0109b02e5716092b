// Predicts the duration of a step by simulating its program with measured times of its instructions.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "program/instruction.hpp"
#include "program/parameter_use.hpp"

namespace strata::plan {

// Measured seconds of the instructions that compute, gather and update; medians of several measurements.
class InstructionCosts {
 public:
  // Adds a measurement of `instruction`, from a program that updates its flat parameter in `update_parts` parts.
  void add(const program::Instruction& instruction, int update_parts,
           double seconds);  // Replaces all measurements of an instruction.
  void set(const program::Instruction& instruction, double seconds) {
    times_[key(instruction)] = {seconds};
  }  // Returns the seconds of an instruction in a program with `update_parts` parts: for a backward that recomputes,
     // those
     // of a forward and a backward; 0 for an instruction that was never measured.
  double of(const program::Instruction& instruction, int update_parts) const;

  // Converts to and from numbers, `numbers_of_one` per instruction, for other ranks.
  static constexpr std::size_t numbers_of_one = 6;
  std::vector<std::int64_t> numbers() const;
  static InstructionCosts from(std::span<const std::int64_t> numbers);

 private:
  // Operation, layer, flat parameter, true for the last micro-batch's Reduce, true if it recomputes.
  using Key = std::tuple<program::Op, int, int, bool, bool>;
  static Key key(const program::Instruction& instruction);
  double median(const Key& key) const;
  std::map<Key, std::vector<double>> times_;
};

// Speed of a rank's buffers from and to their home, while all ranks move theirs.
struct HomeSpeed {
  double read = 0.0;          // bytes per second
  double write = 0.0;         // bytes per second
  bool in_background = true;  // false: the host waits for each transfer
};

struct PredictedStep {
  double seconds = 0.0;
  double computing = 0.0;  // time without waits for buffers and other stages, on the stage with the most
  double moving = 0.0;     // time in which the home transfers, on the stage with the most
};

// A pipeline stage, represented by one of its ranks. All members must outlive the prediction.
struct StageOfStep {
  const program::Program& program;
  const program::ParameterUse& use;
  const InstructionCosts& costs;
  const HomeSpeed& home;
};

// Predicts a step of all stages, which wait for each other's transfers and meet in the Norm; transfers between stages
// take no time. Buffers move one after the other in the order in which they are started, reads and writes alike.
PredictedStep predict_step(std::span<const StageOfStep> stages);

}  // namespace strata::plan
