#pragma once
#include <strata/precision_policy.hpp>
#include <strata/toolbox/state_version.hpp>

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

// Option of a policy that skips steps.
#define STRATA_SKIP_OPTION(OPTION)                             \
  OPTION(integer, max_consecutive_skips, 10, "min=0", "steps", \
         "Maximum number of consecutive steps skipped for non-finite gradients; one more stops the run.")

// Base of a policy without a loss scale; its state is the state of the skips.
class UnscaledPolicy : public PrecisionPolicy {
 public:
  double loss_scale() const final { return 1.0; }
  Verdict judge(const GradientHealth& health) override { return skips_.judge(health); }
  std::string stop_reason() const final { return skips_.stop_reason(); }
  void save(StateWriter& writer) const override { skips_.save(writer); }
  void load(StateReader& reader, int version) override {
    toolbox::refuse_newer_state(*this, version);
    skips_.load(reader);
  }

 protected:
  explicit UnscaledPolicy(std::int64_t max_consecutive_skips) : skips_(max_consecutive_skips) {}

 private:
  SkipPolicy skips_;
};

}  // namespace strata
