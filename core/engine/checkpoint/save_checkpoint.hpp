#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/training_checkpoint.hpp"
#include "config/run_config.hpp"
#include "stage/plugin_set.hpp"
#include "step/session.hpp"

namespace strata::checkpoint {

// Constant content of a run's checkpoints.
struct CheckpointContent {
  std::string model_config;  // config.json that the model's sizes came from, or empty
  RunData data;
};

// Returns the model's parameters for checkpoints: a tied one once, under its first name.
std::vector<SavedParameter> saved_parameters(const std::vector<LayerInfo>& layers);
SavedLayout saved_layout(const config::RunConfig& config);
// Returns the run's config for checkpoints: plugins by name, without the paths of their libraries.
std::vector<std::pair<std::string, config::OptionValue>> saved_settings(const config::RunConfig& config);

// Progress of a run when it saves.
struct Progress {
  std::int64_t steps = 0;
  std::int64_t updates = 0;            // number of steps that were not skipped
  std::int64_t optimizer_updates = 0;  // number of optimizer updates in all of them
  std::string not_finite;              // "the loss of step 7"; empty: the last step's loss was finite
};

// Writes a run's checkpoints: every rank its own shard, rank 0 the rest. A checkpoint replaces earlier ones only when
// every rank has read back its files, all values in it are finite, and so is a loss computed with its weights. Every
// call is [collective] over the run.
class CheckpointSaver {
 public:
  // Takes references that must outlive it. `folder` is locked on rank 0.
  CheckpointSaver(const config::RunConfig& config, step::Session& session, const stage::PluginSet& plugins,
                  CheckpointFolder& folder, CheckpointContent content)
      : config_(config), session_(session), plugins_(plugins), folder_(folder), content_(std::move(content)) {}

  // Saves the state as a whole or not at all; does nothing for a step that this run has saved already. Returns its
  // folder. Blocks. Throws EnvironmentError, on all ranks, when a disk is full or fails: earlier checkpoints stay, this
  // one is removed.
  std::string save(const Progress& progress);

  // True if no loss has been computed yet with the last checkpoint's weights.
  bool is_unproven() const { return unproven_; }
  // Takes the loss of a step or of a validation, equal on all ranks, computed with the weights of the last checkpoint
  // or with later ones. `what`: "the loss of step 8".
  void take_loss(double loss, const std::string& what);
  // Marks the last checkpoint as not finite if no finite loss followed it; for a run that ends. [any rank], throws
  // nothing.
  void mark_if_disproven() noexcept;

  // Checks that every rank can write where save() will: makes a checkpoint's temporary folder and a file of each rank
  // in it, and removes them. Throws UserError and EnvironmentError, on all ranks. [collective] over the run; blocks.
  void try_saving();

 private:
  void check_shared(const std::filesystem::path& folder) const;
  void write(const Progress& progress);
  void share_owner();
  // Returns the pending update of the kept gradients; empty if there is none.
  std::optional<PendingUpdate> pending() const;
  TrainingCheckpoint describe(const Progress& progress) const;
  void finish(const TrainingCheckpoint& saved);

  const config::RunConfig& config_;
  step::Session& session_;
  const stage::PluginSet& plugins_;
  CheckpointFolder& folder_;
  CheckpointContent content_;
  bool has_owner_ = false;
  std::int64_t saved_step_ = -1;
  bool unproven_ = false;
  std::string disproven_by_;  // first loss since the last checkpoint, if not finite
};

}  // namespace strata::checkpoint
