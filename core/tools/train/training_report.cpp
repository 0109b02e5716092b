#include "tools/train/training_report.hpp"

#include <strata/error.hpp>

#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

#include "text/json.hpp"

namespace strata::report {

namespace {

// An empty one where the text is none.
nlohmann::json object_in(const std::string& text) {
  try {
    return text::JsonDocument(text, {}).object().json();
  } catch (const UserError&) {
    return nlohmann::json::object();
  }
}

// The step of a line of metrics; nothing for another line.
std::optional<std::int64_t> step_of(const std::string& line) {
  const nlohmann::json json = object_in(line);
  if (!json.contains("loss")) return {};
  const auto step = json.find("step");
  return step != json.end() && step->is_number_integer() ? std::optional(step->get<std::int64_t>()) : std::nullopt;
}

void check_metrics(const ReportFile& file, bool resumes) {
  if (file.size() == 0) return;
  constexpr std::size_t longest_line = std::size_t{16} << 20;
  const std::string text = file.beginning(longest_line);
  const std::string::size_type end = text.find('\n');
  const std::optional<std::int64_t> first = step_of(text.substr(0, end));
  const bool cut = end == std::string::npos && text.starts_with(R"({"applied":)");  // by the end of an earlier run
  if (!first && !cut) file.refuse_content("a run's metrics");
  if (first == 0)
    throw UserError("{}: counts steps from 0, as an earlier version of Strata did; give another path", file.name());
  if (!resumes)
    throw UserError("{}: holds the metrics of an earlier run; give another path, or go on with that run: --resume",
                    file.name());
}

void check_summary(const ReportFile& file) {
  constexpr std::size_t largest = std::size_t{256} << 20;
  if (file.size() == 0) return;
  if (object_in(file.beginning(largest)).value("event", nlohmann::json()) != "summary")
    file.refuse_content("the summary of a run");
}

}  // namespace

TrainingReport::TrainingReport(const ReportSettings& settings, const config::RunConfig& config, int rank, bool resumes,
                               std::ostream& out)
    : settings_(settings),
      config_(config),
      writes_(rank == 0),
      shows_(writes_ && !settings.quiet),
      out_(out),
      metrics_("--metrics", writes_ ? settings.metrics_file : ""),
      csv_(writes_ ? config.metrics_csv : "", resumes),
      summary_file_("--summary", writes_ ? settings.summary_file : ""),
      trace_(settings.trace_file, rank) {
  check_files(resumes);
}

void TrainingReport::check_files(bool resumes) const {
  check_metrics(metrics_, resumes);
  check_summary(summary_file_);
  const std::vector<const ReportFile*> all = files();
  for (auto one = all.begin(); one != all.end(); ++one)
    for (auto other = one + 1; other != all.end(); ++other)
      if ((*one)->is_same_as(**other))
        throw UserError("{} and {} are one file; give each a path of its own", (*one)->name(), (*other)->name());
}

void TrainingReport::resumed(const runtime::Resumed& resumed) {
  summary_.first_step = resumed.step;
  if (shows_) out_ << "resumed from " << resumed.folder << " after step " << resumed.step << std::endl;
}

void TrainingReport::begin(runtime::Run& run, bool digests) {
  metrics_.keep_lines(step_of, run.steps_done());
  csv_.begin(run.steps_done() * config_.train.global_batch);
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
  if (metrics_.is_open()) metrics_.write(to_json(record, ranks, gradients).dump() + "\n");
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
  if (!summary_file_.is_open()) return;
  summary_file_.clear();
  summary_file_.write(to_json(summary_).dump() + "\n");
}

}  // namespace strata::report
