// How long a step takes: its program, walked through with what its instructions took elsewhere.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "program/instruction.hpp"
#include "program/parameter_use.hpp"

namespace strata::plan {

// Seconds of the instructions that compute, gather and update, by what they are about; medians of several times.
class InstructionCosts {
 public:
  // `instruction` of a program that updates its flat parameter in `update_parts` parts took so long.
  void add(const program::Instruction& instruction, int update_parts, double seconds);
  // In place of all that was added of it.
  void set(const program::Instruction& instruction, double seconds) { times_[key(instruction)] = {seconds}; }
  // In a program with so many parts. A backward that recomputes takes a forward longer than one that does not. What
  // was never carried out takes none.
  double of(const program::Instruction& instruction, int update_parts) const;

  // For other ranks: so many numbers an instruction, and back.
  static constexpr std::size_t numbers_of_one = 6;
  std::vector<std::int64_t> numbers() const;
  static InstructionCosts from(std::span<const std::int64_t> numbers);

 private:
  // Operation, layer, flat parameter, whether it is the last micro-batch's Reduce, whether it recomputes.
  using Key = std::tuple<program::Op, int, int, bool, bool>;
  static Key key(const program::Instruction& instruction);
  double median(const Key& key) const;
  std::map<Key, std::vector<double>> times_;
};

// How fast a rank's buffers come from their home and go there, while all ranks move theirs.
struct HomeSpeed {
  double read = 0.0;          // bytes a second
  double write = 0.0;         // bytes a second
  bool in_background = true;  // else the host waits for every one
};

struct PredictedStep {
  double seconds = 0.0;
  double computing = 0.0;  // of that, everything but waiting for buffers and other stages; of the stage with the most
  double moving = 0.0;     // what its home is busy for; of the stage with the most
};

// A pipeline stage, by one of its ranks. All must outlive the prediction.
struct StageOfStep {
  const program::Program& program;
  const program::ParameterUse& use;
  const InstructionCosts& costs;
  const HomeSpeed& home;
};

// The stages of one step, which wait for what they send one another and meet in the Norm; a transfer between them takes
// no time. Buffers move in the order in which they are started, one after the other, reads and writes alike.
PredictedStep predict_step(std::span<const StageOfStep> stages);

}  // namespace strata::plan
