#include "run/training.hpp"

#include <strata/error.hpp>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "checkpoint/save_checkpoint.hpp"
#include "checkpoint/weights.hpp"
#include "run/csv_folder.hpp"
#include "run/evaluation.hpp"
#include "run/process_memory.hpp"
#include "run/progress.hpp"
#include "run/run.hpp"

namespace strata::runtime {

namespace {

// A file of JSON lines, or nothing at all.
class JsonLines {
 public:
  JsonLines(const std::string& path, std::ios::openmode mode) : path_(path) {
    if (path_.empty()) return;
    file_.open(path_, std::ios::out | mode);
    if (!file_)
      throw UserError(path_ + ": cannot be written; give a path in a folder that exists and that you may write to");
  }
  void write(const nlohmann::json& json) {
    if (path_.empty()) return;
    file_ << json.dump() << "\n" << std::flush;
    if (!file_) throw EnvironmentError(path_ + ": writing failed; is the disk full?");
  }
  bool wanted() const { return !path_.empty(); }

 private:
  std::string path_;
  std::ofstream file_;
};

void add(report::RunSummary& summary, const report::StepRecord& record) {
  ++summary.steps;
  summary.losses.push_back(record.outcome.loss);
  summary.step_seconds.push_back(record.step_s);
  if (!record.applied) ++summary.skipped;
  if (!record.validation) return;
  summary.last_validation = {record.step, *record.validation};
  if (!summary.best_validation || !std::isfinite(summary.best_validation->result.loss) ||
      record.validation->loss < summary.best_validation->result.loss)
    summary.best_validation = summary.last_validation;
}

bool validation_due(const config::RunConfig& config, std::int64_t step) {
  const std::int64_t every = config.validation.every;
  return step + 1 == config.train.steps || (every > 0 && (step + 1) % every == 0);
}

void finish(report::RunSummary& summary, const config::RunConfig& config, std::int64_t warmup_steps) {
  const std::int64_t warmup = summary.steps > warmup_steps ? warmup_steps : 0;
  summary.warmup_steps = warmup;
  summary.median_step_s = report::median({summary.step_seconds.begin() + warmup, summary.step_seconds.end()});
  if (summary.median_step_s > 0.0)
    summary.tokens_per_s =
        static_cast<double>(config.train.global_batch * config.model.seq_len) / summary.median_step_s;
  for (const config::PluginChoice* choice : config.plugins()) summary.setup[choice->slot] = choice->name;
  summary.setup["world_size"] = std::to_string(config.world_size);
  summary.setup["global_batch"] = std::to_string(config.train.global_batch);
}

// Initial weights: a folder's or random ones.
void fill(Session& session, const config::RunConfig& config, const Model& model,
          const std::shared_ptr<const checkpoint::HuggingFaceFolder>& folder) {
  if (!folder) return session.fill(initial_values(static_cast<std::uint64_t>(config.train.seed)));
  session.fill(
      values_from(std::make_shared<checkpoint::RangeReader>(folder, name_map(model, session.stage().model_layers))));
}

bool is_due(const config::CheckpointConfig& checkpoint, std::int64_t steps_done) {
  return !checkpoint.path.empty() && checkpoint.every > 0 && steps_done % checkpoint.every == 0;
}

}  // namespace

report::RunSummary train(const config::RunConfig& config, plugin_host::PluginRegistry& registry, const RankPlace& place,
                         const MakeGroups& make_groups, const TrainRequest& request, std::ostream& out) {
  const bool leader = place.rank == 0;
  check_start(config, request.resume);
  std::shared_ptr<const checkpoint::HuggingFaceFolder> folder;
  if (!config.model.init.empty()) folder = checkpoint::HuggingFaceFolder::open(config.model.init);
  if (leader && !config.export_path.empty()) checkpoint::check_export_folder(config.export_path);
  checkpoint::CheckpointFolder checkpoints(config.checkpoint.path);
  if (leader && !config.checkpoint.path.empty()) checkpoints.lock();
  JsonLines metrics(leader ? request.metrics_file : "", request.resume ? std::ios::app : std::ios::trunc);
  report::CsvFolder csv(leader ? config.metrics_csv : "", request.resume.has_value());
  JsonLines summary_file(leader ? request.summary_file : "", std::ios::trunc);

  PluginSet plugins(config, registry, place.rank, place.world_size > 1);
  const data::Loader loader = open_data(config, config.data, plugins.data);
  const std::unique_ptr<GroupProvider> groups = make_groups(plugins);
  const std::string model_config = folder ? folder->config_text() : "";
  Session session(config, plugins, *groups, place, model_config, /*dry_run=*/false);
  check_tokens(session, loader.source(), plugins.model->vocabulary());
  const std::int64_t data_samples = loader.samples().count();
  std::optional<Resumed> resumed;
  if (request.resume) resumed = resume(config, *request.resume, session, plugins, data_samples);
  if (resumed && leader && !request.quiet)
    out << "resumed from " << resumed->folder << " after step " << resumed->step << std::endl;
  if (!resumed) fill(session, config, *plugins.model, folder);
  session.store().reset_peaks();
  report::reset_peak_resident();

  std::optional<Validation> validation;
  if (!config.validation.data.path.empty()) validation.emplace(config, session, plugins);
  Run run(config, session, loader);
  run.stop_when(request.stop_requested);
  if (request.digests) run.digest_gradients();
  report::RunSummary summary;
  summary.first_step = resumed ? resumed->step : 0;
  summary.steps_done = summary.first_step;
  if (resumed) run.set_updates(resumed->updates);
  CheckpointSaver saver(config, session, plugins, checkpoints, {model_config, data_samples});
  const auto save = [&] {
    groups->does("saving a checkpoint");
    summary.saved_in = saver.save(summary.steps_done, run.updates());
    groups->does("between two steps");
  };
  report::Progress progress(out, request.terminal, config.train.steps, config.train.log_every, summary.first_step);
  while (summary.steps_done < config.train.steps) {
    if (request.before_step) request.before_step();
    std::optional<report::StepRecord> record = run.step(summary.steps_done);
    if (!record) break;
    if (validation && validation_due(config, summary.steps_done))
      record->validation = validation->run(
          [&](std::int64_t done, std::int64_t samples) {
            if (leader && !request.quiet) progress.validating(done, samples);
          },
          request.stop_requested);
    ++summary.steps_done;
    add(summary, *record);
    if (!request.metrics_file.empty()) record->ranks = run.usage();
    record->metrics = plugins.metrics();
    if (leader && !request.quiet) progress.show(*record);
    metrics.write(to_json(*record));
    csv.write(*record, summary.steps_done * config.train.global_batch);
    if (request.after_step) request.after_step(*record);
    if (is_due(config.checkpoint, summary.steps_done)) save();
  }
  progress.finish();
  summary.stopped_by = run.stopped_by();
  // What was loaded or initialised and not trained on needs no saving.
  if (!config.checkpoint.path.empty() && summary.steps > 0) save();
  summary.ranks = run.usage();
  summary.metrics = plugins.metrics();
  finish(summary, config, request.warmup_steps);
  if (!config.export_path.empty() && summary.stopped_by == 0)
    export_weights(session, *plugins.model, config.export_path);
  summary_file.write(to_json(summary));
  return summary;
}

}  // namespace strata::runtime
