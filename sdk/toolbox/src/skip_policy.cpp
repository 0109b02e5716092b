#include <strata/format.hpp>
#include <strata/state_stream.hpp>
#include <strata/toolbox/skip_policy.hpp>

namespace strata {

Verdict SkipPolicy::judge(const GradientHealth& health) {
  last_step_ = health.step;
  consecutive_ = health.finite ? 0 : consecutive_ + 1;
  if (health.finite) return Verdict::Apply;
  return consecutive_ > limit_ ? Verdict::Stop : Verdict::Skip;
}

std::string SkipPolicy::stop_reason() const {
  return format(
      "the gradients of {} consecutive steps, the last one step {}, were not finite; max_consecutive_skips allows {}: "
      "the run has diverged; lower the learning rate, clip gradients, or start from an earlier checkpoint; if this "
      "happened from the first step on, check the initial weights and whether the model supports this precision",
      consecutive_, last_step_, limit_);
}

void SkipPolicy::save(StateWriter& writer) const {
  writer.integer("consecutive_skips", consecutive_);
}
void SkipPolicy::load(StateReader& reader) {
  consecutive_ = reader.integer("consecutive_skips");
}

}  // namespace strata
