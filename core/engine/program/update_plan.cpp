#include "program/update_plan.hpp"

#include <algorithm>
#include <set>

#include "program/parameter_use.hpp"

namespace strata::program {

bool UpdatePlan::has_sums() const {
  return std::ranges::find(sums_of_round, true) != sums_of_round.end();
}

bool UpdatePlan::has(UpdatePlace wanted) const {
  return std::ranges::any_of(place, [&](const auto& one) { return one.second == wanted; });
}

std::vector<int> updated_parameters(const Program& program, const ParameterUse& use) {
  std::vector<int> in_order;
  std::set<int> seen;
  for (const Instruction& instruction : program) {
    if (instruction.op != Op::Forward) continue;
    for (const int flat : use.of_layer(instruction.layer))
      if (use.flat_parameter(flat).trainable && seen.insert(flat).second) in_order.push_back(flat);
  }
  return in_order;
}

UpdatePlan all_updates(UpdatePlace place, const std::vector<int>& parameters, const std::vector<bool>& sums_of_round) {
  UpdatePlan plan{.sums_of_round = sums_of_round, .assumes_norm = place == UpdatePlace::BeforeNorm};
  for (const int flat : parameters) plan.place.emplace(flat, place);
  return plan;
}

UpdatePlan deferred_updates(const std::vector<int>& parameters, const std::vector<bool>& sums_of_round,
                            const ParameterUse& use, double at_end) {
  UpdatePlan plan = all_updates(UpdatePlace::BeforeUse, parameters, sums_of_round);
  if (plan.has_sums()) return plan;
  const auto elements = [&](int flat) { return static_cast<double>(use.flat_parameter(flat).elements); };
  double all = 0.0, taken = 0.0;
  for (const int flat : parameters) all += elements(flat);
  for (const int flat : parameters) {
    if (taken + elements(flat) / 2 >= at_end * all) break;
    taken += elements(flat);
    plan.place[flat] = UpdatePlace::AtEnd;
  }
  return plan;
}

}  // namespace strata::program
