// Checks the programs that the core's passes made from a valid schedule. A failure is an error in a pass, so each
// function throws Bug: a sentence and the surrounding instructions, marked "<-- here".
#pragma once
#include "program/parameter_use.hpp"

namespace strata::program {

// Throws a Bug that marks the instruction at `index`.
[[noreturn]] void fail(const std::string& text, const Program& program, std::size_t index);

// Base of checks that walk along a program, instruction after instruction.
class ProgramCheck {
 public:
  ProgramCheck(const Program& program, const ParameterUse& use) : program_(program), use_(use) {}

 protected:
  void require(bool holds, const std::string& text) const {
    if (!holds) fail(text, program_, index_);
  }

  const Program& program_;
  const ParameterUse& use_;
  std::size_t index_ = 0;  // index of the instruction being checked
};

// Checks that every transfer between chunks on different stages is sent once after its data is computed, and received
// once before it is used. No backend can deadlock: all stages are simulated with rendezvous sends, one queue per device
// with only the front entry running, and computes that wait for their receives. One program per stage.
void validate_communication(const std::vector<Program>& stages, const Placement& placement);

// Checks that values are gathered before each use and released when no longer used. Every Prefetch is followed by its
// Gather. Live elements stay within `lookahead.live_parameters` or a single layer's own, prefetched elements within
// `lookahead.elements`. Resident parameters are neither gathered nor released.
void validate_residency(const Program& program, const ParameterUse& use, const Lookahead& lookahead);

// Checks that each trainable gradient is borrowed before it is written and reduced once per micro-batch after the last
// write, that `first` and `last` are right for each update, and that frozen parameters have no gradient.
void validate_reduction(const Program& program, const ParameterUse& use);

// Checks the end of the step. The gradient of each trainable flat parameter that the program uses is finished after its
// last Reduce, then summed over the stages if it is one of `replicated`, in their order, and squared once before the
// one Norm. Each is then updated once in every round, in order, after the sums of that round, if any, for which each is
// measured once, and then published once; with `synchronizes` it is synchronized in between. An update by a kept
// gradient comes before the Norm and after all computations with the parameter; a Keep follows when the gradient is
// squared.
//
// With `updates` within the step, each parameter passes from its first Reduce to Publish that many times, always before
// the Norm.
void validate_end_of_step(const Program& program, const ParameterUse& use, const std::vector<int>& replicated,
                          const std::vector<bool>& sums_of_round, int updates = 0, bool synchronizes = false);

// Checks that every compute finds its version bound, for every trainable flat parameter whose values it reads. A Stash
// copies the newest values, gathered unless `resident`; a Bind finds the copy, and a Drop one that is not bound. While
// values change, the strategy's own memory is bound and not gathered. No copy outlives the step.
void validate_versions(const Program& program, const ParameterUse& use, bool resident);

// Checks that a buffer that moves is on the device during its uses: parameters from Prefetch or Gather to the end of
// Gather and in Publish; gradients from BorrowGradient to FinishGradient and in every read; in Update and Measure all,
// in Keep both gradients, unless the optimizer updates at home; a recomputed layer's input in its Forward and its
// backward, with the same micro-batch. Nothing is brought twice, and nothing stays after the step.
void validate_tiers(const Program& program, const ParameterUse& use);

}  // namespace strata::program
