// A LearningRate gives the learning rate of each optimizer update, and a momentum where it schedules one. It sees
// integers and the config's base rate only.
//
// The linear warm-up (`learning_rate.warmup`) is the engine's, the same for every plugin: over its updates the rate
// rises from 0 to the plugin's rate(0), which the last of them has. A plugin counts from the first update after it, so
// none repeats that arithmetic.
#pragma once
#include <strata/error.hpp>
#include <strata/export.hpp>
#include <strata/plugin.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace strata {

// What a schedule is told of the run.
struct TrainingRun {
  std::optional<double> base_rate;  // learning_rate.base; absent where the config does not give it
  std::int64_t updates = 0;         // train.steps without the warm-up, at least 0
  std::int64_t warmup = 0;          // updates of the warm-up

  // learning_rate.base. Throws UserError where it is not given.
  double base() const {
    if (!base_rate)
      throw UserError("learning_rate.base must be given: this schedule takes its rates from it, as in base: 6e-4");
    return *base_rate;
  }
};

// All functions are pure: the answer depends on the arguments and the options only. They are asked for any update in
// any order, beyond the run's last one too, on every rank, which must get the same. So a resumed run needs no state.
class STRATA_EXPORT LearningRate : public Plugin {
 public:
  ~LearningRate() override;
  // The rate of optimizer update `update` after the warm-up, counted from 0: finite, not negative. Skipped steps are
  // not counted. [any rank]
  virtual double rate(std::int64_t update, const TrainingRun& run) const = 0;
  // Its momentum, at least 0 and below 1, at every update or at none; none unless overridden. The optimizer uses it
  // instead of its own. [any rank]
  virtual std::optional<double> momentum(std::int64_t update, const TrainingRun& run) const;
  // The updates at which the formula changes, for drawings; those outside the run are left out. None unless
  // overridden. [any rank]
  virtual std::vector<std::int64_t> phase_starts(const TrainingRun& run) const;
};

}  // namespace strata
