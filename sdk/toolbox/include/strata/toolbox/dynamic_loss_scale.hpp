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

// A loss scale that rides below the overflow of half-precision gradients: DeepSpeed's state machine, step by step.
//
// A step whose gradients are not finite takes one from the hysteresis; when only one is left it halves the scale
// instead, down to `minimum`. Halving does not refill the hysteresis, so that further such steps halve at once: a scale
// far too high comes down fast, and a single bad batch does not move a good one.
// A step with finite gradients doubles the scale and refills the hysteresis when `window`, 2 `window`, ... such steps
// lie between it and the last that was not finite, or the begin: with no overflow step `window` (from 0) is the first
// to double, as long as an fp32 loss can be multiplied by it: gradients that are all zero never overflow.
// With consecutive_hysteresis every step with finite gradients refills the hysteresis.
//
// [Note: The scale of one step] value() before update() is what the step's loss was multiplied by, and what its
// gradients are divided by: the engine asks once, before the step. Dividing by the value after update()
// (DeepSpeed#8588) halves the gradients of every step that doubles the scale.
class DynamicLossScale {
 public:
  explicit DynamicLossScale(const LossScaleRules& rules)
      : rules_(rules), value_(rules.initial), hysteresis_left_(rules.hysteresis) {}

  double value() const { return value_; }
  // Called once a step. False: the gradients were not finite with the smallest scale, and nothing helps.
  [[nodiscard]] bool update(bool finite);

  void save(StateWriter& writer) const;
  void load(StateReader& reader);

 private:
  LossScaleRules rules_;
  double value_;
  std::int64_t steps_ = 0;           // updates so far
  std::int64_t last_overflow_ = -1;  // the update that last saw gradients that were not finite
  std::int64_t hysteresis_left_;
};

}  // namespace strata
