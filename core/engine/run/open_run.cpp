// A run's opening, and its work between steps.
#include <spdlog/spdlog.h>
#include <strata/error.hpp>

#include "group/numbers.hpp"
#include "run/rank_facts.hpp"
#include "run/run.hpp"

namespace strata::run {

RunFiles open_training(const config::RunConfig& config, int rank) {
  RunFiles files;
  if (!config.model.init.empty()) files.weights.emplace(config.model.init, "");
  files.checkpoints = std::make_unique<checkpoint::CheckpointFolder>(config.checkpoint.path);
  if (rank == 0 && !config.checkpoint.path.empty()) files.checkpoints->lock();
  return files;
}

RunFiles open_evaluation(const config::RunConfig& config, const std::string& checkpoint) {
  RunFiles files{stage::Purpose::Evaluation};
  files.weights.emplace(config.model.init, checkpoint);
  files.checkpoints = std::make_unique<checkpoint::CheckpointFolder>("");
  return files;
}

Run::Run(const resolve::ResolvedRun& resolved, RunFiles files, const stage::RankNumbers& place,
         const stage::MakeGroups& make_groups)
    : config_(resolved.config),
      place_(place),
      files_(std::move(files)),
      plugins_(config_, *resolved.registry, place.rank, place.world_size > 1),
      data_(files_.purpose == stage::Purpose::Evaluation || config_.data.path.empty()
                ? std::nullopt
                : std::optional(open_data(config_, config_.data, plugins_.data, place.rank))),
      validation_data_(
          config_.validation.data.path.empty()
              ? std::nullopt
              : std::optional(open_data(config_, config_.validation.data, plugins_.validation, place.rank))),
      groups_(connected(make_groups, *resolved.registry)),
      session_(config_, plugins_, *groups_, place, files_.weights ? files_.weights->as_source() : stage::ModelSource(),
               /*dry_run=*/false, files_.purpose),
      saver_(config_, session_, plugins_, *files_.checkpoints,
             {files_.weights ? files_.weights->model_config() : "", data_of_run()}) {
  if (config_.step_policy == config::StepPolicy::Speculative && !session_.looks_ahead() && place.rank == 0)
    spdlog::warn(
        "step_policy: speculative has no effect in this run: with {}, no stage finishes a step early enough to begin "
        "the next one; `strata schedule show` compares schedulers in its column \"speculative\"",
        plugins_.scheduler.name);
  if (session_.looks_ahead() && config_.data.document_end && place.rank == 0)
    spdlog::warn(
        "step_policy: speculative assumes that all targets of a step count; with data.documents: separate almost every "
        "step has ignored targets and is repeated: set step_policy: plain");
  if (session_.stage().layers.updates_within_step() > 0 && place.rank == 0)
    spdlog::warn(
        "{} applies gradients to weights that were updated in the meantime, so losses differ from those of a single "
        "process; this harms adaptive optimizers most (arXiv:2606.30634), and this run uses {}: before a long run, "
        "compare with a scheduler that updates at the end of the step",
        plugins_.scheduler.name, plugins_.optimizer.name);
  if (has_data()) {
    check_document_end(config_.data, "data", plugins_.model->vocabulary());
    check_tokens(session_, data_->source(), plugins_.model->vocabulary());
  }
  if (validation_data_) validation_.emplace(config_, session_, plugins_, std::move(*validation_data_));
}

std::unique_ptr<group::GroupProvider> Run::connected(const stage::MakeGroups& make_groups,
                                                     const plugins::PluginRegistry& registry) {
  std::unique_ptr<group::GroupProvider> groups = make_groups(config_, registry, plugins_);
  if (place_.world_size > 1)
    groups->agree_on("the files that are read",
                     content_facts(config_, {data_ ? &*data_ : nullptr, validation_data_ ? &*validation_data_ : nullptr,
                                             files_.weights ? &*files_.weights : nullptr}),
                     "give all ranks the same files");
  return groups;
}

checkpoint::RunData Run::data_of_run() const {
  if (!has_data()) return {};
  return {data_->samples().count(), content_of(data_->source())};
}

void Run::fill() {
  if (!files_.weights) return session_.fill(checkpoint::initial_values(static_cast<std::uint64_t>(config_.train.seed)));
  files_.weights->verify(session_);
  session_.fill(files_.weights->source(*plugins_.model, session_.stage().layers.model()));
  files_.weights->check_finite(session_);
}

std::optional<checkpoint::Resumed> Run::resume(const std::string& from) {
  const std::optional<checkpoint::Resumed> resumed =
      checkpoint::resume(config_, from, session_, plugins_, data_of_run());
  if (!resumed) return resumed;
  steps_done_ = resumed->step;
  updates_ = resumed->updates;
  optimizer_updates_ = resumed->optimizer_updates;
  return resumed;
}

std::optional<report::ValidationResult> Run::validate(const Validation::Progress& progress) {
  strata_check(validation_.has_value(), "a run without validation.path validates nothing");
  return validation_->run(progress, [this] { return agree_to_stop() != 0; });
}

std::string Run::save_checkpoint() {
  groups_->does("saving a checkpoint");
  session_.make_pending_updates();
  const std::string folder = saver_.save({steps_done_, updates_, optimizer_updates_, not_finite_});
  groups_->does("between two steps");
  return folder;
}

void Run::prove_checkpoint() {
  if (!saver_.is_unproven() || !has_data()) return;
  const std::int64_t step = steps_done_ - 1;
  const data::TokenBatch batch = data_->micro_batch(step, 0);
  MicroBatch seen = on_device(step, 0, batch);
  seen.training = false;
  const at::Device device = session_.store().device();
  if (group::reduce_numbers(session_.stage().groups.world(), device, {session_.counted(batch.valid_tokens)}).front() ==
      0)
    return;
  const stage::ForwardSums sums = session_.zero_sums();
  session_.evaluate({seen}, sums);
  saver_.take_loss(session_.figures(sums, batch.valid_tokens).loss,
                   "the loss after step " + std::to_string(steps_done_));
  saver_.mark_if_disproven();
}

void Run::try_writing(const std::string& export_folder, const std::string& type) {
  if (!config_.checkpoint.path.empty()) saver_.try_saving();
  if (export_folder.empty()) return;
  const std::string config = files_.weights ? files_.weights->model_config() : "";
  checkpoint::try_export(session_, *plugins_.model, export_folder, checkpoint::export_type(type, config));
}

void Run::export_weights(const std::string& folder, const std::string& type) {
  session_.make_pending_updates();
  const std::string config = files_.weights ? files_.weights->model_config() : "";
  checkpoint::export_weights(session_, *plugins_.model, folder, checkpoint::export_type(type, config),
                             {config_.model.init, config});
}

}  // namespace strata::run
