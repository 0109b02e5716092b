#include "run/run_report.hpp"

namespace strata::run {

RunReport::RunReport(const report::ReportSettings& settings, const config::RunConfig& config, int rank)
    : settings_(settings) {
  if (rank == 0) sinks_ = report::open_sinks(settings, config);
}

void RunReport::check_apart(const report::ReportFile& other) const {
  for (const std::unique_ptr<report::MetricSink>& sink : sinks_)
    if (sink->file() != nullptr) sink->file()->check_apart(other);
}

std::string RunReport::earlier_run(const std::string& resume) const {
  for (const std::unique_ptr<report::MetricSink>& sink : sinks_)
    if (const std::string earlier = sink->earlier_run(); !earlier.empty())
      return earlier + ", or continue that run: " + resume;
  return "";
}

void RunReport::begin(Run& run) {
  for (const std::unique_ptr<report::MetricSink>& sink : sinks_) sink->begin(run.steps_done());
  has_begun_ = true;
  step::Session& session = run.session();
  if (settings_.usage_of_run()) meter_.emplace(session);
  if (!settings_.digests) return;
  digest_.emplace(session.stage().layers.model());
  session.executor().show_gradients([this](const std::string& parameter, std::int64_t begin,
                                           const at::Tensor& gradient) { digest_->add(parameter, begin, gradient); });
}

void RunReport::validating(std::int64_t done, std::int64_t samples) {
  for (const std::unique_ptr<report::MetricSink>& sink : sinks_) sink->validating(done, samples);
}

void RunReport::after_step(Run& run, const report::StepRecord& record) {
  report::StepRecord complete = record;
  if (digest_) complete.gradients = take_digests(run.session());
  if (settings_.usage_of_steps()) complete.ranks = meter_->of_ranks();
  if (!sinks_.empty()) complete.metrics = run.metrics();
  for (const std::unique_ptr<report::MetricSink>& sink : sinks_) sink->write(complete);
}

std::vector<report::ParameterDigest> RunReport::take_digests(step::Session& session) {
  std::vector<report::ParameterDigest> digests =
      digest_->over_run(session.stage().groups.world(), session.store().device(), session.executor().loss_scale());
  digest_->clear();
  return digests;
}

void RunReport::after_validation(const Run& run, const report::ValidationResult& result) {
  for (const std::unique_ptr<report::MetricSink>& sink : sinks_)
    sink->write(report::StepValidation{run.steps_done() - 1, result});
}

void RunReport::end(Run& run, const std::string& saved_in, std::optional<double> predicted_step_s) {
  end_ = {run.steps_done(), run.stopped_by(), saved_in, predicted_step_s, {}, run.metrics()};
  if (meter_) end_.ranks = meter_->of_ranks();
}

void RunReport::finish() {
  for (const std::unique_ptr<report::MetricSink>& sink : sinks_) sink->finish(end_);
}

}  // namespace strata::run
