#include "precision/scripts.hpp"

#include <strata/error.hpp>

#include <limits>

namespace strata::conformance {

namespace {

Script drawn(const std::string& name, std::mt19937_64& random, std::size_t steps, double overflows) {
  Script script{name, {}};
  std::bernoulli_distribution overflow(overflows);
  for (std::size_t i = 0; i < steps; ++i) script.finite.push_back(!overflow(random));
  return script;
}

}  // namespace

std::vector<Script> scripts(std::mt19937_64 random) {
  std::vector<Script> all{{"no step overflows", std::vector<bool>(2100, true)},
                          {"every step overflows", std::vector<bool>(300, false)}};
  Script turns{"every other step overflows", {}};
  for (int i = 0; i < 100; ++i) turns.finite.push_back(i % 2 == 0);
  all.push_back(turns);
  Script bursts{"bursts of 1 to 9 steps overflow", {}};
  for (std::size_t length = 1; length < 10; ++length) {
    bursts.finite.insert(bursts.finite.end(), length, false);
    bursts.finite.insert(bursts.finite.end(), 30, true);
  }
  all.push_back(bursts);
  all.push_back(drawn("a step in a thousand overflows", random, 4000, 0.001));
  all.push_back(drawn("a step in ten overflows", random, 300, 0.1));
  all.push_back(drawn("two steps in three overflow", random, 300, 0.67));
  return all;
}

std::string to_string(const Step& step) {
  static constexpr const char* names[] = {"Apply", "Skip", "Stop"};
  return std::string(names[static_cast<std::size_t>(step.verdict)]) + " at loss scale " +
         std::to_string(step.loss_scale) + ", then " + std::to_string(step.next_scale) +
         (step.stop_reason.empty() ? "" : " (" + step.stop_reason + ")");
}

Trace play(PrecisionPolicy& policy, const Script& script, std::size_t begin, std::size_t end) {
  Trace trace;
  for (std::size_t i = begin; i < end; ++i) {
    const bool finite = script.finite[i];
    const double norm = finite       ? 0.5 + static_cast<double>(i % 7)
                        : i % 2 == 0 ? std::numeric_limits<double>::infinity()
                                     : std::numeric_limits<double>::quiet_NaN();
    Step step;
    step.loss_scale = policy.loss_scale();
    step.verdict = policy.judge({static_cast<std::int64_t>(i), norm, finite});
    step.next_scale = policy.loss_scale();
    if (step.verdict == Verdict::Stop) step.stop_reason = policy.stop_reason();
    trace.push_back(step);
    if (step.verdict == Verdict::Stop) break;
  }
  return trace;
}

void each_setting(Subject& subject, const std::function<void(const fakes::OptionTexts&)>& work) {
  for (const fakes::OptionTexts& setting : subject.settings()) {
    try {
      subject.make<PrecisionPolicy>(setting);
    } catch (const UserError&) {
      continue;
    }
    try {
      work(setting);
    } catch (const Skip&) {
      throw;
    } catch (const std::exception& error) {
      throw Failure("with " + to_string(setting) + ": " + error.what());
    }
  }
}

}  // namespace strata::conformance
