// Rules for runs that resume a checkpoint.
#pragma once
#include <string>

#include "checkpoint/ranges.hpp"
#include "checkpoint/training_checkpoint.hpp"
#include "config/run_config.hpp"
#include "stage/stage.hpp"
#include "step/learning_rate.hpp"

namespace strata::checkpoint {

// Throws UserError, with key and both values, when a setting that determines samples or random numbers of a step
// differs, or when the checkpoint has more steps than the run.
void check_settings(const TrainingCheckpoint& saved, const config::RunConfig& config);
// Returns settings that differ, may differ, and change later results: "key: saved -> now, ..."; empty without any.
std::string differing_settings(const TrainingCheckpoint& saved, const config::RunConfig& config,
                               const step::RunLearningRate& learning_rate);
// Throws UserError naming the first parameter that one of the two lacks or that has another shape.
void check_model(const TrainingCheckpoint& saved, const std::vector<LayerInfo>& layers);
// Throws UserError when this rank's pieces have other states than the checkpoint, or states of other types.
void check_optimizer_state(const TrainingCheckpoint& saved, const RangeSource& source, const stage::Stage& stage);

}  // namespace strata::checkpoint
