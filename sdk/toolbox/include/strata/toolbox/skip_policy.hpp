#pragma once
#include <strata/precision_policy.hpp>

#include <cstdint>
#include <string>

namespace strata {

// Verdicts of precision policies without a loss scale: skip a step whose gradients are not finite; stop the run after
// too many of them in a row, because then the model has diverged.
class SkipPolicy {
 public:
  explicit SkipPolicy(std::int64_t max_consecutive_skips) : limit_(max_consecutive_skips) {}
  Verdict judge(const GradientHealth& health);
  std::string stop_reason() const;
  void save(StateWriter& writer) const;
  void load(StateReader& reader);

 private:
  std::int64_t limit_;
  std::int64_t consecutive_ = 0;
  std::int64_t last_step_ = 0;
};

}  // namespace strata
