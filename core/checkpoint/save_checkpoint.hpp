#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/plugin_state.hpp"
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

// Writes a run's checkpoints: every rank its own shard, rank 0 the rest.
class CheckpointSaver {
 public:
  // All must outlive it. `folder` is locked on rank 0.
  CheckpointSaver(const config::RunConfig& config, Session& session, const PluginSet& plugins,
                  checkpoint::CheckpointFolder& folder, CheckpointContent content)
      : config_(config), session_(session), plugins_(plugins), folder_(folder), content_(std::move(content)) {}

  // Saves the state after `step` steps, `updates` of them not skipped, and `optimizer_updates` in them, as a whole or
  // not at all; a step that this run has saved already is left as it is. Returns its folder. [collective] over the run;
  // blocks. Throws EnvironmentError, on all ranks, when a disk is full or fails: the checkpoints before it stay, of
  // this one nothing does.
  std::string save(std::int64_t step, std::int64_t updates, std::int64_t optimizer_updates);

  // Whether every rank can write where save() will: makes the temporary folder of a checkpoint and a file of each rank
  // in it, and removes them. Throws UserError and EnvironmentError, on all ranks. [collective] over the run; blocks.
  void try_saving();

 private:
  void check_shared(const std::filesystem::path& folder) const;
  void write(std::int64_t step, std::int64_t updates, std::int64_t optimizer_updates);
  std::vector<checkpoint::SavedPlugin> plugin_states() const;
  // Nothing when the next step has no update to make up for; then its kept gradients do not matter.
  std::optional<checkpoint::PendingUpdate> pending() const;
  void finish(std::int64_t step, std::int64_t updates, std::int64_t optimizer_updates,
              std::vector<checkpoint::SavedFile> files);

  const config::RunConfig& config_;
  Session& session_;
  const PluginSet& plugins_;
  checkpoint::CheckpointFolder& folder_;
  CheckpointContent content_;
  std::int64_t saved_step_ = -1;
};

}  // namespace strata::runtime
