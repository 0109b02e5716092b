#include "runtime/training.hpp"

#include <strata/error.hpp>

#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "report/process_memory.hpp"
#include "report/progress.hpp"
#include "runtime/run.hpp"
#include "runtime/weights.hpp"

namespace strata::runtime {

namespace {

// A file of JSON lines, or nothing at all.
class JsonLines {
 public:
  explicit JsonLines(const std::string& path) : path_(path) {
    if (path_.empty()) return;
    file_.open(path_, std::ios::trunc);
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

}  // namespace

report::RunSummary train(const config::RunConfig& config, plugin_host::PluginRegistry& registry, const RankPlace& place,
                         const MakeGroups& make_groups, const TrainRequest& request, std::ostream& out) {
  const bool leader = place.rank == 0;
  const data::Loader loader = open_data(config, config.data);
  std::shared_ptr<const checkpoint::HuggingFaceFolder> folder;
  if (!config.model.init.empty()) folder = checkpoint::HuggingFaceFolder::open(config.model.init);
  if (leader && !config.export_path.empty()) checkpoint::check_export_folder(config.export_path);
  JsonLines metrics(leader ? request.metrics_file : "");
  JsonLines summary_file(leader ? request.summary_file : "");

  PluginSet plugins(config, registry, place.rank, place.world_size > 1);
  const std::unique_ptr<GroupProvider> groups = make_groups(plugins);
  Session session(config, plugins, *groups, place, folder ? folder->config_text() : "", /*dry_run=*/false);
  if (leader) loader.source().check_vocabulary(plugins.model->vocabulary());
  if (folder)
    session.fill(values_from(
        std::make_shared<checkpoint::RangeReader>(folder, name_map(*plugins.model, session.stage().model_layers))));
  else
    session.fill(initial_values(static_cast<std::uint64_t>(config.train.seed)));
  session.store().reset_peaks();
  report::reset_peak_resident();

  Run run(config, session, loader);
  report::Progress progress(out, request.terminal, config.train.steps, config.train.log_every);
  report::RunSummary summary;
  for (std::int64_t step = 0; step < config.train.steps; ++step) {
    report::StepRecord record = run.step(step);
    add(summary, record);
    if (!request.metrics_file.empty()) record.ranks = run.usage();
    record.metrics = plugins.metrics();
    if (leader && !request.quiet) progress.show(record);
    metrics.write(to_json(record));
    if (request.after_step) request.after_step(record);
  }
  progress.finish();
  summary.ranks = run.usage();
  summary.metrics = plugins.metrics();
  finish(summary, config, request.warmup_steps);
  if (!config.export_path.empty()) export_weights(session, *plugins.model, config.export_path);
  summary_file.write(to_json(summary));
  return summary;
}

}  // namespace strata::runtime
