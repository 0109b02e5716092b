// An engine's reports: progress lines, files and observers of a program, the export after the last step.
#include <strata/error.hpp>

#include "checkpoint/agreement.hpp"
#include "run/implementation.hpp"

namespace strata {

namespace {

StepResult result_of(const report::StepRecord& record) {
  return {record.step + 1,
          record.outcome.loss,
          record.outcome.gradient_norm,
          record.learning_rate,
          record.applied,
          record.step_s,
          record.outcome.clip_factor,
          record.tokens_per_s,
          record.outcome.auxiliary_loss,
          record.outcome.statistics};
}

// The sink of a program's observer.
class ObserverSink final : public report::MetricSink {
 public:
  explicit ObserverSink(std::unique_ptr<Observer> observer) : observer_(std::move(observer)) {}
  void begin(std::int64_t steps_done) override { observer_->begin(steps_done); }
  void write(const report::StepRecord& record) override { observer_->step(result_of(record)); }
  void write(const report::StepValidation& validation) override {
    observer_->validation(validation.step + 1, validation.result.loss);
  }

 private:
  std::unique_ptr<Observer> observer_;
};

}  // namespace

Observer::~Observer() = default;
void Observer::begin(std::int64_t /*steps_done*/) {}
void Observer::validation(std::int64_t /*step*/, double /*loss*/) {}

void Engine::Implementation::begin_report(const char* call, const Where& where) {
  if (report.has_begun()) return;
  const auto open = [&] {
    const std::string earlier = resumes ? "" : report.earlier_run("engine.resume()");
    if (!earlier.empty()) refuse(call, where, earlier);
    report.begin(run);
    return false;
  };
  step::Session& session = run.session();
  plugins::for_program(
      [&] { checkpoint::work_in_rounds(session.stage().groups.world(), session.store().device(), open).check(); });
}

StepResult Engine::Implementation::conclude(const report::StepRecord& record) {
  return plugins::for_program([&] {
    report.after_step(run, record);
    if (run.steps_done() == config().train.steps) write_export();
    return result_of(record);
  });
}

void Engine::Implementation::write_export() {
  if (!config().export_path.empty()) run.export_weights(config().export_path);
}

void Engine::observe(std::unique_ptr<Observer> observer, Where where) {
  if (!observer) refuse("observe", where, "the observer is null; pass an object");
  if (implementation_->report.has_begun())
    refuse("observe", where, "steps have already run; add observers before the first step");
  implementation_->report.add(std::make_unique<ObserverSink>(std::move(observer)));
}

}  // namespace strata
