// Runs of a precision policy without a run: which steps' gradients are finite, and what it makes of each.
#pragma once
#include <strata/precision_policy.hpp>

#include <functional>
#include <string>
#include <vector>

#include "runner/case.hpp"

namespace strata::conformance {

struct Script {
  std::string name;          // "every third step overflows"
  std::vector<bool> finite;  // by step
};

// Overflows never, always, in turns, in bursts, rarely and often.
std::vector<Script> scripts(std::mt19937_64 random);

struct Step {
  double loss_scale = 0.0;  // that the step's loss was multiplied by
  Verdict verdict = Verdict::Apply;
  double next_scale = 0.0;
  std::string stop_reason;  // of Stop
  bool operator==(const Step&) const = default;
};
using Trace = std::vector<Step>;
std::string to_string(const Step& step);

// Steps [begin, end) of the script, to the first Stop at most: nothing is judged after it.
Trace play(PrecisionPolicy& policy, const Script& script, std::size_t begin, std::size_t end);
inline Trace play(PrecisionPolicy& policy, const Script& script) {
  return play(policy, script, 0, script.finite.size());
}

// Calls `work` with each setting that the plugin takes; a failure gets the setting in front.
void each_setting(Subject& subject, const std::function<void(const fakes::OptionTexts&)>& work);

}  // namespace strata::conformance
