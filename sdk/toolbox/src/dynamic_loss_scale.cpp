#include <strata/state_stream.hpp>
#include <strata/toolbox/dynamic_loss_scale.hpp>

#include <algorithm>
#include <limits>

namespace strata {

bool DynamicLossScale::update(bool finite) {
  constexpr double factor = 2.0;
  const std::int64_t step = steps_++;
  if (!finite) {
    last_overflow_ = step;
    if (hysteresis_left_ > 1) {
      --hysteresis_left_;
      return true;
    }
    if (value_ <= rules_.minimum) return false;
    value_ = std::max(value_ / factor, rules_.minimum);
    return true;
  }
  if (rules_.consecutive_hysteresis) hysteresis_left_ = rules_.hysteresis;
  const std::int64_t between = step - last_overflow_ - 1;  // finite steps
  if (between > 0 && between % rules_.window == 0) {
    hysteresis_left_ = rules_.hysteresis;
    if (value_ * factor <= double{std::numeric_limits<float>::max()}) value_ *= factor;
  }
  return true;
}

void DynamicLossScale::save(StateWriter& writer) const {
  writer.number("loss_scale", value_);
  writer.integer("loss_scale_steps", steps_);
  writer.integer("loss_scale_last_overflow", last_overflow_);
  writer.integer("loss_scale_hysteresis", hysteresis_left_);
}

void DynamicLossScale::load(StateReader& reader) {
  value_ = reader.number("loss_scale");
  steps_ = reader.integer("loss_scale_steps");
  last_overflow_ = reader.integer("loss_scale_last_overflow");
  hysteresis_left_ = std::min(reader.integer("loss_scale_hysteresis"), rules_.hysteresis);
}

}  // namespace strata
