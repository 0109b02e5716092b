#include "tools/train/training_report.hpp"

#include <strata/error.hpp>

#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

namespace strata::report {

JsonLines::JsonLines(const std::string& path, bool append) : path_(path) {
  if (path_.empty()) return;
  file_.open(path_, append ? std::ios::app : std::ios::trunc);
  if (!file_)
    throw UserError(path_ + ": cannot be written; give a path in a folder that exists and that you may write to");
}

void JsonLines::write(const nlohmann::json& json) {
  if (path_.empty()) return;
  file_ << json.dump() << "\n" << std::flush;
  if (!file_) throw EnvironmentError(path_ + ": writing failed; is the disk full?");
}

TrainingReport::TrainingReport(const ReportSettings& settings, const config::RunConfig& config, int rank, bool append,
                               std::ostream& out)
    : settings_(settings),
      config_(config),
      writes_(rank == 0),
      shows_(writes_ && !settings.quiet),
      out_(out),
      metrics_(writes_ ? settings.metrics_file : "", append),
      csv_(writes_ ? config.metrics_csv : "", append),
      summary_file_(writes_ ? settings.summary_file : "", /*append=*/false),
      trace_(settings.trace_file, rank) {}

void TrainingReport::resumed(const runtime::Resumed& resumed) {
  summary_.first_step = resumed.step;
  if (shows_) out_ << "resumed from " << resumed.folder << " after step " << resumed.step << std::endl;
}

void TrainingReport::begin(runtime::Run& run, bool digests) {
  trace_.begin(run, settings_.warmup_steps, settings_.trace_steps);
  meter_.emplace(run);
  if (!digests) return;
  digest_.emplace(run.session().stage().model_layers);
  run.session().executor().show_gradients(
      [this](const std::string& parameter, std::int64_t begin, const at::Tensor& gradient) {
        digest_->add(parameter, begin, gradient);
      });
}

void TrainingReport::before_step(runtime::Run& run) {
  if (!progress_)
    progress_.emplace(out_, settings_.terminal, config_.train.steps, config_.train.log_every, summary_.first_step);
  trace_.before_step(run);
  if (settings_.before_step) settings_.before_step();
}

void TrainingReport::validating(std::int64_t done, std::int64_t samples) {
  if (shows_) progress_->validating(done, samples);
}

void TrainingReport::after_step(runtime::Run& run, StepRecord record) {
  trace_.after_step(run);
  add(record);
  std::vector<ParameterDigest> gradients;
  if (digest_) {
    runtime::Session& session = run.session();
    gradients = digest_->over_run(*session.stage().world, session.store().device(), session.executor().loss_scale());
    digest_->clear();
  }
  std::vector<RankUsage> ranks;
  if (!settings_.metrics_file.empty()) ranks = meter_->of_ranks();
  record.metrics = run.metrics();
  if (shows_) progress_->show(record);
  metrics_.write(to_json(record, ranks, gradients));
  csv_.write(record, run.steps_done() * config_.train.global_batch);
  if (settings_.after_step) settings_.after_step(record);
}

void TrainingReport::add(const StepRecord& record) {
  ++summary_.steps;
  summary_.losses.push_back(record.outcome.loss);
  if (record.outcome.auxiliary_loss) summary_.auxiliary_losses.push_back(*record.outcome.auxiliary_loss);
  summary_.step_seconds.push_back(record.step_s);
  summary_.tensor.add(record.outcome.times.tensor);
  if (!record.applied) ++summary_.skipped;
  if (record.outcome.made_again) ++summary_.made_again;
  if (!record.validation) return;
  summary_.last_validation = {record.step, *record.validation};
  if (!summary_.best_validation || !std::isfinite(summary_.best_validation->result.loss) ||
      record.validation->loss < summary_.best_validation->result.loss)
    summary_.best_validation = summary_.last_validation;
}

const RunSummary& TrainingReport::finish(runtime::Run& run, const std::string& saved_in) {
  if (progress_) progress_->finish();
  trace_.finish(run);
  summary_.steps_done = run.steps_done();
  summary_.stopped_by = run.stopped_by();
  summary_.saved_in = saved_in;
  summary_.ranks = meter_->of_ranks();
  summary_.metrics = run.metrics();
  summary_.warmup_steps = summary_.steps > settings_.warmup_steps ? settings_.warmup_steps : 0;
  summary_.median_step_s = median({summary_.step_seconds.begin() + summary_.warmup_steps, summary_.step_seconds.end()});
  if (summary_.median_step_s > 0.0)
    summary_.tokens_per_s =
        static_cast<double>(config_.train.global_batch * config_.model.seq_len) / summary_.median_step_s;
  for (const config::PluginChoice* choice : config_.plugins()) summary_.setup[choice->slot] = choice->name;
  summary_.predicted_step_s = settings_.predicted_step_s;
  summary_.setup["world_size"] = std::to_string(config_.world_size);
  summary_.setup["global_batch"] = std::to_string(config_.train.global_batch);
  return summary_;
}

void TrainingReport::write_summary() {
  summary_file_.write(to_json(summary_));
}

}  // namespace strata::report
