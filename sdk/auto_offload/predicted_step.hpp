// How long a step takes: its program, walked through with what its instructions took elsewhere.
#pragma once
#include <map>
#include <tuple>
#include <vector>

#include "program/instruction.hpp"
#include "program/parameter_use.hpp"

namespace strata::runtime {

// Seconds of the instructions that compute, gather and update, by what they are about; medians of several times.
class InstructionCosts {
 public:
  // `instruction` of a program that updates its flat parameter in `update_parts` parts took so long.
  void add(const Instruction& instruction, int update_parts, double seconds);
  // In a program with so many parts. A backward that recomputes takes a forward longer than one that does not. What
  // was never carried out takes none.
  double of(const Instruction& instruction, int update_parts) const;

 private:
  // Operation, layer, flat parameter, whether it is the last micro-batch's Reduce, whether it recomputes.
  using Key = std::tuple<Op, int, int, bool, bool>;
  static Key key(const Instruction& instruction);
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
  double computing = 0.0;  // of that, everything but waiting for buffers
  double moving = 0.0;     // what the home is busy for
};

// One rank's step. Buffers move in the order in which they are started, one after the other, reads and writes alike.
PredictedStep predict_step(const Program& program, const ParameterUse& use, const InstructionCosts& costs,
                           const HomeSpeed& home);

}  // namespace strata::runtime
