#pragma once
#include <strata/precision_policy.hpp>

#include <cstdint>
#include <string>

namespace strata {

// How policies without a loss scale judge a step: gradients that are not finite are skipped, and too many such steps in
// a row stop the run, since then it is the model that diverged and not one batch that was unlucky.
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
