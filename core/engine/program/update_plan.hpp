// Where the updates of a step stand in the program, and what is kept so that they are right there.
#pragma once
#include <map>
#include <vector>

#include "program/instruction.hpp"

namespace strata::program {

struct ParameterUse;

enum class UpdatePlace {
  // After the norm, at the end of the step.
  AtEnd,
  // In the next step, before the first use of the parameter, by the gradient that this step leaves in place. The
  // results are bit-identical to AtEnd, and reads of other memory tiers overlap with the forward: Yue et al. 2025,
  // "GreedySnake" (arXiv:2512.17570).
  BeforeUse,
  // In the next step, after the last use of the parameter, by a copy of this step's gradient. The update waits neither
  // for that step's norm nor for its reductions, and its reads overlap with the backward.
  AfterUse,
  // At the end of the step, before the norm is known: the update assumes that the norm neither clips nor skips. A copy
  // of the state is kept; if the assumption was wrong, the state is restored and the update made again: Qi et al. 2023,
  // "Zero Bubble Pipeline Parallelism" (arXiv:2401.10241), section 4.
  BeforeNorm,
  // Several times within the step, each after the last backward of its micro-batches. Micro-batches in flight compute
  // with copies of the values that they began with: see add_versions().
  WithinStep,
};

struct UpdatePlan {
  std::map<int, UpdatePlace> place;  // by trainable flat parameter that the program uses
  // By round of the optimizer's update: true if it begins with sums over all flat parameters. Updates with sums stand
  // together, so all have one place.
  std::vector<bool> sums_of_round{false};
  // True if every stage starts the norm and goes on before it is known, also one without a trainable parameter.
  bool assumes_norm = false;
  bool averages = false;  // replica groups average their weights after an update: `step_policy: local`

  bool has_sums() const;
  bool has(UpdatePlace wanted) const;
};

// Returns the trainable flat parameters that a program's forwards use, in the order of their first uses. The next step
// needs them in this order, so their updates have it too.
std::vector<int> updated_parameters(const Program& program, const ParameterUse& use);

// Returns a plan with all updates at one place.
UpdatePlan all_updates(UpdatePlace place, const std::vector<int>& parameters, const std::vector<bool>& sums_of_round);
// Returns a plan with updates before their use, except of about the first `at_end` of the elements: the forward is
// short, and reads of these updates overlap with the backward. With sums all stand before the first use.
UpdatePlan deferred_updates(const std::vector<int>& parameters, const std::vector<bool>& sums_of_round,
                            const ParameterUse& use, double at_end);

}  // namespace strata::program
