#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/training_checkpoint.hpp"
#include "config/run_config.hpp"
#include "step/plugin_set.hpp"
#include "step/session.hpp"

namespace strata::runtime {

// What a run's checkpoints say of it beside what changes from step to step.
struct CheckpointContent {
  std::string model_config;  // the config.json that the model's sizes came from, or empty
  checkpoint::RunData data;
};

// The model's parameters as checkpoints list them: a tied one once, under its first name.
std::vector<checkpoint::SavedParameter> saved_parameters(const std::vector<LayerInfo>& layers);
checkpoint::SavedLayout saved_layout(const config::RunConfig& config);
// The run's config as checkpoints list it: plugins by their names, and nothing of where their libraries lie.
std::vector<std::pair<std::string, config::OptionValue>> saved_settings(const config::RunConfig& config);

// What a run has made when it saves.
struct Progress {
  std::int64_t steps = 0;
  std::int64_t updates = 0;            // steps that were not skipped
  std::int64_t optimizer_updates = 0;  // in them all
  std::string not_finite;              // "the loss of step 7"; empty: the last step's loss was finite
};

// Writes a run's checkpoints: every rank its own shard, rank 0 the rest. A checkpoint replaces earlier ones only when
// every rank has read back what it wrote, all values in it are finite, and so is a loss that was computed with its
// weights. [collective] over the run, each call.
class CheckpointSaver {
 public:
  // All must outlive it. `folder` is locked on rank 0.
  CheckpointSaver(const config::RunConfig& config, Session& session, const PluginSet& plugins,
                  checkpoint::CheckpointFolder& folder, CheckpointContent content)
      : config_(config), session_(session), plugins_(plugins), folder_(folder), content_(std::move(content)) {}

  // Saves the state as a whole or not at all; a step that this run has saved already is left as it is. Returns its
  // folder. Blocks. Throws EnvironmentError, on all ranks, when a disk is full or fails: the checkpoints before it
  // stay, of this one nothing does.
  std::string save(const Progress& progress);

  // The last checkpoint's weights have given no loss yet.
  bool is_unproven() const { return unproven_; }
  // Takes the loss of a step or of a validation, the same on all ranks, which was computed with the weights of that
  // checkpoint or with later ones. `what`: "the loss of step 8".
  void take_loss(double loss, const std::string& what);
  // Marks that checkpoint as not finite, if no finite loss followed it; for a run that ends. [any rank], throws
  // nothing.
  void mark_if_disproven() noexcept;

  // Whether every rank can write where save() will: makes the temporary folder of a checkpoint and a file of each rank
  // in it, and removes them. Throws UserError and EnvironmentError, on all ranks. [collective] over the run; blocks.
  void try_saving();

 private:
  void check_shared(const std::filesystem::path& folder) const;
  void write(const Progress& progress);
  void share_owner();
  // Nothing when the next step has no update to make up for; then its kept gradients do not matter.
  std::optional<checkpoint::PendingUpdate> pending() const;
  checkpoint::TrainingCheckpoint describe(const Progress& progress) const;
  void finish(const checkpoint::TrainingCheckpoint& saved);

  const config::RunConfig& config_;
  Session& session_;
  const PluginSet& plugins_;
  checkpoint::CheckpointFolder& folder_;
  CheckpointContent content_;
  bool has_owner_ = false;
  std::int64_t saved_step_ = -1;
  bool unproven_ = false;
  std::string disproven_by_;  // the first loss since the last checkpoint, where it was not finite
};

}  // namespace strata::runtime
