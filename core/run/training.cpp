#include "run/training.hpp"

namespace strata::runtime {

std::string train(Run& run, TrainingObserver& observer) {
  const config::RunConfig& config = run.config();
  const std::int64_t first = run.steps_done();
  std::string saved_in;
  run.agree_to_stop();
  while (run.stopped_by() == 0 && run.steps_done() < config.train.steps) {
    observer.before_step(run);
    report::StepRecord record = run.step();
    if (run.validation_due())
      record.validation =
          run.validate([&](std::int64_t done, std::int64_t samples) { observer.validating(done, samples); });
    observer.after_step(run, std::move(record));
    if (!run.checkpoint_due()) continue;
    saved_in = run.save_checkpoint();
    run.agree_to_stop();
  }
  // What was loaded or initialised and not trained on needs no saving.
  if (!config.checkpoint.path.empty() && run.steps_done() > first) {
    saved_in = run.save_checkpoint();
    if (run.stopped_by() == 0) run.prove_checkpoint();
  }
  return saved_in;
}

}  // namespace strata::runtime
