// The model of a checkpoint beside the model of a config.
#pragma once
#include <optional>
#include <string>

#include "checkpoint/training_checkpoint.hpp"
#include "run/run.hpp"

namespace strata::runtime {

// Evaluates the model that was saved: the options of `run`'s model become those of the checkpoint, one or the latest in
// a folder of them, where the config gives none. Throws UserError for a config that gives options of another model, or
// another model plugin. [any rank]
void take_saved_model(ResolvedRun& run, const std::string& checkpoint);

// Throws UserError where the run's model is not the one of the checkpoint that it is to go on from: parameters of the
// same shapes can belong to different models. Options that act in training only may change. [any rank]
void check_kept_model(const config::RunConfig& config, plugin_host::PluginRegistry& registry,
                      const checkpoint::TrainingCheckpoint& saved);

// check_start() of checkpoint/resume.hpp, and check_kept_model() of the checkpoint that a run would resume from. `from`
// as there. [any rank]
void check_resume(const ResolvedRun& run, const std::optional<std::string>& from);

// Run::resume(), and check_kept_model() of the checkpoint that was loaded: an earlier one where the latest is damaged.
// [collective]
std::optional<Resumed> resume(Run& run, const ResolvedRun& resolved, const std::string& from);

}  // namespace strata::runtime
