#pragma once
#include <strata/precision_policy.hpp>

#include <cstdint>

namespace strata {

struct LossScaleRules {
  double initial = 65536.0;
  std::int64_t window = 1000;   // steps
  std::int64_t hysteresis = 2;  // steps
  bool consecutive_hysteresis = false;
  double minimum = 1.0;
};

// A dynamic loss scale with DeepSpeed's rules:
//
// - A counter starts at `hysteresis`. An overflow (gradients that are not finite) lowers it by one; if it is 1, the
//   overflow halves the scale instead, down to `minimum`. So one bad batch does not change a good scale.
// - Halving does not refill the counter: every further overflow halves, and a scale that is far too high drops fast.
// - A finite step doubles the scale and refills the counter if the number of finite steps between it and the last
//   overflow, or the start, is a multiple of `window`. Without an overflow, step `window` (from 0) is the first.
// - With consecutive_hysteresis every finite step refills the counter.
// - The scale stays within fp32's range, because gradients that are all zero never overflow.
//
// [Note: The scale of one step] value() before update() is the scale of the step: its loss is multiplied and its
// gradients are divided by it. The engine reads it once, before the step. Dividing by the value after update()
// (DeepSpeed#8588) would halve the gradients of every step that doubles the scale.
class DynamicLossScale {
 public:
  explicit DynamicLossScale(const LossScaleRules& rules)
      : rules_(rules), value_(rules.initial), hysteresis_left_(rules.hysteresis) {}

  double value() const { return value_; }
  // Called once per step. Returns false if the gradients were not finite at the minimum scale.
  [[nodiscard]] bool update(bool finite);

  void save(StateWriter& writer) const;
  void load(StateReader& reader);

 private:
  LossScaleRules rules_;
  double value_;
  std::int64_t steps_ = 0;           // number of updates
  std::int64_t last_overflow_ = -1;  // index of the last update with gradients that were not finite
  std::int64_t hysteresis_left_;
};

}  // namespace strata
