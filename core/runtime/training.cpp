#include "runtime/training.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <spdlog/spdlog.h>
#include <strata/error.hpp>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "config/learning_rate.hpp"
#include "data/loader.hpp"
#include "report/process_memory.hpp"
#include "report/progress.hpp"
#include "runtime/plugin_call.hpp"
#include "runtime/session.hpp"
#include "runtime/weights.hpp"

namespace strata::runtime {

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// A file of JSON lines, or nothing at all.
class JsonLines {
 public:
  explicit JsonLines(const std::string& path) : path_(path) {
    if (path_.empty()) return;
    file_.open(path_, std::ios::trunc);
    if (!file_) throw UserError(path_ + ": cannot be written; give a path in a folder that exists and that you may write to");
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

data::Loader open_data(const config::RunConfig& config) {
  const data::TokenWidth width = config.data.token_bytes == 4 ? data::TokenWidth::U32 : data::TokenWidth::U16;
  data::TokenFile file(config.data.path, width);
  const std::int64_t samples = file.sample_count(config.model.seq_len);
  data::SampleOrder order = config.data.order == config::DataOrder::Shuffled
                                ? data::SampleOrder::shuffled(samples, static_cast<std::uint64_t>(config.train.seed))
                                : data::SampleOrder::sequential(samples);
  return data::Loader(std::move(file), config.model.seq_len, order, {config.train.micro_batch, config.parallel.data, config.train.accumulation});
}

// The state of a training run on one rank, from one step to the next.
class Run {
 public:
  Run(const config::RunConfig& config, Session& session, const data::Loader& loader)
      : config_(config), session_(session), loader_(loader) {}

  report::StepRecord step(std::int64_t step) {
    report::StepRecord record;
    record.step = step;
    const Clock::time_point begin = Clock::now();
    const StepInput input = read(step);
    record.data_s = seconds_since(begin);
    record.learning_rate = input.learning_rate;
    record.outcome = session_.step(input);
    const NamedPlugin<PrecisionPolicy>& precision = session_.stage().precision;
    const Verdict verdict = plugin_call(precision.name, "judge()", session_.stage().rank, [&] {
      return precision->judge({step, record.outcome.gradient_norm, record.outcome.finite});
    });
    if (verdict == Verdict::Stop)
      throw EnvironmentError("step " + std::to_string(step) + ": " + precision.name + " ends the run: " + precision->stop_reason());
    if (verdict == Verdict::Skip && record.outcome.finite)
      throw Bug(precision.name + " skips a step whose gradient is finite; by then the update has been made");
    record.applied = record.outcome.finite && verdict == Verdict::Apply;
    if (record.applied) ++updates_;
    record.step_s = seconds_since(begin);
    record.tokens_per_s = static_cast<double>(config_.train.global_batch * config_.model.seq_len) / record.step_s;
    return record;
  }

  // Every rank's memory and traffic, by rank. [collective]
  std::vector<report::RankUsage> usage() {
    report::RankUsage mine;
    mine.ledger = session_.store().ledger();
    mine.resident = report::resident_bytes();
    mine.peak_resident = report::peak_resident_bytes();
    mine.sent_by_collective.resize(collective_count);
    for (const auto& [name, group] : session_.groups()) {
      mine.sent += group->traffic().total_bytes();
      for (std::size_t c = 0; c < collective_count; ++c) mine.sent_by_collective[c] += group->traffic().bytes[c];
    }
    Group& world = *session_.stage().world;
    const at::Device device = session_.store().device();
    const at::Tensor numbers = at::tensor(mine.pack(), at::TensorOptions().dtype(at::kLong)).to(device);
    const at::Tensor all = at::empty({world.size() * report::RankUsage::length}, numbers.options());
    world.all_gather(all, numbers).wait();
    const at::Tensor host = all.cpu();
    std::vector<report::RankUsage> ranks;
    for (int rank = 0; rank < world.size(); ++rank)
      ranks.push_back(report::RankUsage::unpack(host.const_data_ptr<std::int64_t>() + rank * report::RankUsage::length));
    return ranks;
  }

 private:
  StepInput read(std::int64_t step) {
    StepInput input;
    input.step = step;
    input.seed = static_cast<std::uint64_t>(config_.train.seed);
    input.clip = config_.train.clip;
    input.updates = updates_;
    input.learning_rate = config::learning_rate(config_.learning_rate, updates_);
    const MeshPlace place = session_.place();
    const at::Device device = session_.store().device();
    std::int64_t valid = 0;
    for (std::int64_t micro_batch = 0; micro_batch < config_.train.accumulation; ++micro_batch) {
      const data::TokenBatch batch = loader_.micro_batch(step, micro_batch, place.data);
      const std::int64_t run = micro_batch * config_.parallel.data + place.data;
      input.batches.push_back({batch.tokens.to(device), batch.targets.to(device),
                               step * config_.train.global_batch + run * config_.train.micro_batch});
      valid += batch.valid_tokens;
    }
    // Every stage reads the same samples: the first one's counts are those of the global batch.
    const at::Tensor count = at::tensor({place.pipeline == 0 && place.tensor == 0 ? valid : std::int64_t{0}}, at::TensorOptions().dtype(at::kLong)).to(device);
    session_.stage().world->all_reduce(count, ReduceOperation::Sum).wait();
    input.valid_tokens = count.cpu().const_data_ptr<std::int64_t>()[0];
    return input;
  }

  const config::RunConfig& config_;
  Session& session_;
  const data::Loader& loader_;
  std::int64_t updates_ = 0;
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
    summary.tokens_per_s = static_cast<double>(config.train.global_batch * config.model.seq_len) / summary.median_step_s;
  for (const config::PluginChoice* choice : config.plugins()) summary.setup[choice->slot] = choice->name;
  summary.setup["world_size"] = std::to_string(config.world_size);
  summary.setup["global_batch"] = std::to_string(config.train.global_batch);
}

}  // namespace

report::RunSummary train(const config::RunConfig& config, plugin_host::PluginRegistry& registry, const RankPlace& place,
                         const MakeGroups& make_groups, const TrainRequest& request, std::ostream& out) {
  const bool leader = place.rank == 0;
  const data::Loader loader = open_data(config);
  std::shared_ptr<const checkpoint::HuggingFaceFolder> folder;
  if (!config.model.init.empty()) folder = checkpoint::HuggingFaceFolder::open(config.model.init);
  if (leader && !config.export_path.empty()) checkpoint::check_export_folder(config.export_path);
  JsonLines metrics(leader ? request.metrics_file : "");
  JsonLines summary_file(leader ? request.summary_file : "");

  PluginSet plugins(config, registry, place.rank, place.world_size > 1);
  const std::unique_ptr<GroupProvider> groups = make_groups(plugins);
  Session session(config, plugins, *groups, place, folder ? folder->config_text() : "", /*dry_run=*/false);
  if (leader) loader.file().check_vocabulary(plugins.model->vocabulary());
  if (folder)
    session.fill(values_from(std::make_shared<checkpoint::RangeReader>(folder, name_map(*plugins.model, session.stage().model_layers))));
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
