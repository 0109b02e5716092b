#pragma once
#include <strata/data_source.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/resume.hpp"
#include "checkpoint/save_checkpoint.hpp"
#include "checkpoint/weights.hpp"
#include "data/loader.hpp"
#include "group/group_provider.hpp"
#include "resolve/resolve_run.hpp"
#include "run/step_record.hpp"
#include "run/validation.hpp"
#include "step/plugin_set.hpp"
#include "step/session.hpp"

namespace strata::runtime {

// The tokens of `data`, which is config.data or the validation's and of which `plugin` is made, cut into micro-batches
// as the config says. The plugin outlives the loader. Throws UserError.
data::Loader open_data(const config::RunConfig& config, const config::DataConfig& data,
                       const NamedPlugin<DataSource>& plugin);

// Throws UserError for an end of documents, of the config's `section`, that the model does not know. [any rank]
void check_document_end(const config::DataConfig& data, const std::string& section, std::int64_t vocabulary);

// Reads all tokens, each rank a share of them, for ids that the model does not know. Throws UserError. [collective]
void check_tokens(Session& session, const data::TokenSource& source, std::int64_t vocabulary);

// What a rank opens before it makes plugins and meets the others. [any rank]
struct RunFiles {
  Purpose purpose = Purpose::Training;
  std::optional<SavedWeights> weights;  // nothing: initial values are random
  std::unique_ptr<checkpoint::CheckpointFolder> checkpoints;
};
// The initial weights, where the config names them, and checkpoint.path, which rank 0 locks. Throws UserError.
RunFiles open_training(const config::RunConfig& config, int rank);
// The weights of a training's checkpoint, or of model.init where `checkpoint` is empty. Throws UserError.
RunFiles open_evaluation(const config::RunConfig& config, const std::string& checkpoint);

// One rank of a run, of which `strata train`, `strata eval` and <strata/engine.hpp> are users: plugins, groups,
// session, steps, validation, checkpoints.
class Run {
 public:
  // Makes the plugins, opens the data, connects the ranks and allocates the state. `resolved` must outlive it. Throws
  // UserError and EnvironmentError. [collective]
  Run(const ResolvedRun& resolved, RunFiles files, const RankNumbers& place, const MakeGroups& make_groups);

  // Every rank calls one of the two before the first step or validation. fill: weights from the files, or random ones.
  // resume: see checkpoint/resume.hpp. [collective]
  void fill();
  std::optional<Resumed> resume(const std::string& from);

  // Asked in each step and wherever agree_to_stop() is called: the signal by which this rank was asked to stop, or 0.
  // Called on every rank or on none.
  void stop_when(std::function<int()> requested) { stop_requested_ = std::move(requested); }

  // Trains on the next step's micro-batches and asks the precision policy for its verdict. [collective] over the run;
  // blocks the host. Throws EnvironmentError when the policy ends the run, UserError when no target counts.
  report::StepRecord step();
  // The same on this rank's micro-batches, train.accumulation of them.
  report::StepRecord step(const std::vector<data::TokenBatch>& batches);
  // The signal that the ranks agreed to stop by, or 0. All know it after a step in which one of them was asked to, for
  // the request travels with the gradient's norm, and after agree_to_stop(), which is for what takes longer than a step
  // and returns the same. [collective] over the run; blocks the host.
  int stopped_by() const { return stopped_by_; }
  int agree_to_stop();

  // This rank's micro-batches of a step, from the config's data.
  std::vector<data::TokenBatch> read(std::int64_t step) const;

  // What step() is made of, for steps that are carried out in parts. The input of step `step` without micro-batches and
  // their valid tokens; a micro-batch of it where layers compute; the verdict and the record.
  StepInput scalars(std::int64_t step) const;
  MicroBatch on_device(std::int64_t step, std::int64_t micro_batch, const data::TokenBatch& batch) const;
  report::StepRecord conclude(const StepInput& input, const StepOutcome& outcome, double step_s);

  // Whether the config asks for a validation, or for a checkpoint, after the steps made so far; after the last step
  // both, where they have a path.
  bool validation_due() const { return validation_ && is_due(steps_done_, config_.validation.every); }
  bool checkpoint_due() const {
    return !config_.checkpoint.path.empty() && is_due(steps_done_, config_.checkpoint.every);
  }
  // The mean loss over validation.path, which the config gives; nothing when a rank was asked to stop. [collective]
  std::optional<report::ValidationResult> validate(const Validation::Progress& progress = {});
  // Its folder, in checkpoint.path, which the config gives. [collective]
  std::string save_checkpoint();
  // Tries what saving and exporting need before there is anything to lose: every rank writes to checkpoint.path, and
  // rank 0 makes the folder of an export, unless its name is empty. Throws, the same on all ranks. [collective]
  void try_writing(const std::string& export_folder, const std::string& type = "float32");
  // For the checkpoint after the last step: computes a loss of one micro-batch with its weights and, where that is not
  // finite, marks the checkpoint. [collective]
  void prove_checkpoint();
  // Writes the weights to a new folder, in this type: see export_type(). [collective]
  void export_weights(const std::string& folder, const std::string& type = "float32");

  // Ends what its groups have under way, after an error. Nothing can be computed afterwards.
  void stop() { groups_->stop(); }

  std::map<std::string, Metric> metrics() const { return plugins_.metrics(); }

  const config::RunConfig& config() const { return config_; }
  const RankNumbers& place() const { return place_; }
  const Model& model() const { return *plugins_.model; }
  Session& session() { return session_; }
  const Session& session() const { return session_; }
  bool has_data() const { return data_.has_value(); }
  // Steps made so far, those before a resume included; the next one has this number.
  std::int64_t steps_done() const { return steps_done_; }

 private:
  // What it reads from files, of which the ranks see the same before the groups connect.
  std::unique_ptr<GroupProvider> connected(const MakeGroups& make_groups, const plugin_host::PluginRegistry& registry);
  checkpoint::RunData data_of_run() const;
  report::StepRecord record_of(const StepInput& input, const StepOutcome& outcome, double step_s);
  bool judge(report::StepRecord& record);
  void check_updates_within_step(const StepInput& input, const StepOutcome& outcome) const;
  // Whether what is made every `every` steps is made after so many.
  bool is_due(std::int64_t steps, std::int64_t every) const {
    return steps > 0 && (steps == config_.train.steps || (every > 0 && steps % every == 0));
  }
  StepInput input_of(std::int64_t step, const std::vector<data::TokenBatch>& batches) const;
  // Whether the step after the next one follows it with nothing in between that would forget what was made of it.
  bool another_follows() const;
  report::StepRecord make(const StepInput& input, const StepInput* next);

  const config::RunConfig& config_;
  RankNumbers place_;
  RunFiles files_;
  PluginSet plugins_;
  std::optional<data::Loader> data_;             // nothing where the program brings its batches, and in an evaluation
  std::optional<data::Loader> validation_data_;  // until validation_ takes it
  std::unique_ptr<GroupProvider> groups_;
  Session session_;
  CheckpointSaver saver_;
  std::optional<Validation> validation_;
  std::int64_t steps_done_ = 0;
  std::int64_t updates_ = 0;            // steps that were not skipped
  std::int64_t optimizer_updates_ = 0;  // of them all; several a step where stages update within it
  std::string not_finite_;              // the last step's loss, where it was not: "the loss of step 7"
  std::optional<StepInput> next_;       // of the next step, read when the step before looked ahead
  std::function<int()> stop_requested_;
  int stopped_by_ = 0;
};

}  // namespace strata::runtime
