// A LearningRate computes the learning rate of each optimizer update, and optionally the momentum. Its inputs are
// integers and the config's base rate.
//
// The engine does the linear warm-up (`learning_rate.warmup`) for every plugin: the rate rises linearly from 0 and
// reaches the plugin's rate(0) in the last warm-up update. A plugin counts updates from the end of the warm-up.
#pragma once
#include <strata/error.hpp>
#include <strata/export.hpp>
#include <strata/plugin.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace strata {

// Properties of the run that a schedule may depend on.
struct TrainingRun {
  std::optional<double> base_rate;  // learning_rate.base; empty if the config does not set it
  std::int64_t updates = 0;         // train.steps minus the warm-up, at least 0
  std::int64_t warmup = 0;          // updates of the warm-up

  // Returns learning_rate.base. Throws UserError if it is not set.
  double base() const {
    if (!base_rate)
      throw UserError("learning_rate.base must be given: this schedule takes its rates from it, as in base: 6e-4");
    return *base_rate;
  }
};

// All functions are pure: results depend only on the arguments and the options. They are called on every rank for any
// update in any order, including updates after the run's last, so a resumed run needs no state.
class STRATA_EXPORT LearningRate : public Plugin {
 public:
  ~LearningRate() override;
  // Returns the rate of optimizer update `update`, counted from 0 after the warm-up: finite, not negative. Skipped
  // steps are not counted. [any rank]
  virtual double rate(std::int64_t update, const TrainingRun& run) const = 0;
  // Returns the momentum of update `update`, at least 0 and below 1, which replaces the optimizer's own. Either every
  // update has one or none has; none unless overridden. [any rank]
  virtual std::optional<double> momentum(std::int64_t update, const TrainingRun& run) const;
  // Returns the updates at which the formula changes, for plots; updates outside the run are ignored. Empty unless
  // overridden. [any rank]
  virtual std::vector<std::int64_t> phase_starts(const TrainingRun& run) const;
};

}  // namespace strata
