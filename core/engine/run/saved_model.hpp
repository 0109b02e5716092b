// Comparison of a checkpoint's model with a config's.
#pragma once
#include <optional>
#include <string>

#include "checkpoint/training_checkpoint.hpp"
#include "run/run.hpp"

namespace strata::run {

// Sets the options of `run`'s model that the config leaves out to those of the checkpoint (one, or the latest in a
// folder of them), so that the saved model is evaluated. Throws UserError for a config with options of another model,
// or another model plugin. [any rank]
void take_saved_model(resolve::ResolvedRun& run, const std::string& checkpoint);

// Throws UserError if the run's model is not that of the checkpoint to resume from: parameters of the same shapes can
// belong to different models. Options that affect training only may change. [any rank]
void check_kept_model(const config::RunConfig& config, plugins::PluginRegistry& registry,
                      const checkpoint::TrainingCheckpoint& saved);

// Calls check_start() of checkpoint/resume.hpp, and check_kept_model() for the checkpoint that the run would resume
// from. `from`: as in check_start(). [any rank]
void check_resume(const resolve::ResolvedRun& run, const std::optional<std::string>& from);

// Calls Run::resume(), and check_kept_model() for the loaded checkpoint: an earlier one if the latest is damaged.
// [collective]
std::optional<checkpoint::Resumed> resume(Run& run, const resolve::ResolvedRun& resolved, const std::string& from);

}  // namespace strata::run
