#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "run/run.hpp"

namespace strata::run {

// Observer of a training loop; every call is made on every rank.
class TrainingObserver {
 public:
  virtual ~TrainingObserver() = default;
  virtual void before_step(Run& /*run*/) {}  // not timed; may block
  virtual void validating(std::int64_t /*done*/, std::int64_t /*samples*/) {}
  // Called after the step's validation, if due, and before its checkpoint. `run` is between two steps.
  virtual void after_step(Run& /*run*/, const report::StepRecord& /*record*/) {}
};

// Trains until train.steps are made or a rank is asked to stop, which all ranks learn at the end of that step,
// validation or checkpoint; validates and saves when due, and after the last step. Returns the folder of the last
// checkpoint, or "". [collective] over the run.
std::string train(Run& run, const std::vector<TrainingObserver*>& observers);

}  // namespace strata::run
