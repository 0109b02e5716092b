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
  return "the gradients of " + std::to_string(consecutive_) + " consecutive steps, the last one step " +
         std::to_string(last_step_) + ", were not finite; max_consecutive_skips allows " + std::to_string(limit_) +
         ": the run has diverged; lower the learning rate, clip gradients, or start from an earlier checkpoint; if its "
         "first steps were like that, check the weights it began with and whether the model computes in this precision";
}

void SkipPolicy::save(StateWriter& writer) const {
  writer.integer("consecutive_skips", consecutive_);
}
void SkipPolicy::load(StateReader& reader) {
  consecutive_ = reader.integer("consecutive_skips");
}

}  // namespace strata
