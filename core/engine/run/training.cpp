#include "run/training.hpp"

#include <strata/error.hpp>

namespace strata::run {

namespace {

// Throws EnvironmentError after a first step whose loss and gradients are all 0: random weights give neither.
void check_computed(const report::StepRecord& record) {
  if (record.outcome.loss != 0.0 || record.outcome.gradient_norm != 0.0 || record.outcome.valid_tokens == 0) return;
  throw EnvironmentError(
      "step {}: the loss and the norm of the gradients are exactly 0: the device computed nothing, or the model has a "
      "vocabulary of 1; `strata verify` compares a run's gradients",
      record.step + 1);
}

}  // namespace

std::string train(Run& run, const std::vector<TrainingObserver*>& observers) {
  const config::RunConfig& config = run.config();
  const std::int64_t first = run.steps_done();
  std::string saved_in;
  run.agree_to_stop();
  while (run.stopped_by() == 0 && run.steps_done() < config.train.steps) {
    for (TrainingObserver* observer : observers) observer->before_step(run);
    report::StepRecord record = run.step();
    if (record.step == first) check_computed(record);
    if (run.validation_due())
      record.validation = run.validate([&](std::int64_t done, std::int64_t samples) {
        for (TrainingObserver* observer : observers) observer->validating(done, samples);
      });
    for (TrainingObserver* observer : observers) observer->after_step(run, record);
    if (!run.checkpoint_due()) continue;
    saved_in = run.save_checkpoint();
    run.agree_to_stop();
  }
  // Loaded or initialised values without training need no saving.
  if (!config.checkpoint.path.empty() && run.steps_done() > first) {
    saved_in = run.save_checkpoint();
    if (run.stopped_by() == 0) run.prove_checkpoint();
  }
  return saved_in;
}

}  // namespace strata::run
