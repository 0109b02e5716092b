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
#include "report/step_record.hpp"
#include "resolve/resolve_run.hpp"
#include "run/validation.hpp"
#include "stage/plugin_set.hpp"
#include "step/session.hpp"

namespace strata::run {

// Opens the tokens of `data` (config.data or the validation's, which names `plugin`), cut into the micro-batches of
// `rank` by the config. The plugin must outlive the loader. Throws UserError.
data::Loader open_data(const config::RunConfig& config, const config::DataConfig& data,
                       const stage::NamedPlugin<DataSource>& plugin, int rank);

// Throws UserError for a document end, of the config's `section`, outside the model's vocabulary. [any rank]
void check_document_end(const config::DataConfig& data, const std::string& section, std::int64_t vocabulary);

// Checks all tokens, each rank a share, for ids outside the vocabulary. Throws UserError. [collective]
void check_tokens(step::Session& session, const data::TokenSource& source, std::int64_t vocabulary);

// Files that a rank opens before it makes plugins and meets the others. [any rank]
struct RunFiles {
  stage::Purpose purpose = stage::Purpose::Training;
  std::optional<checkpoint::SavedWeights> weights;  // empty: initial values are random
  std::unique_ptr<checkpoint::CheckpointFolder> checkpoints;
};
// Opens the initial weights, if the config names them, and checkpoint.path, which rank 0 locks. Throws UserError.
RunFiles open_training(const config::RunConfig& config, int rank);
// Opens the weights of a checkpoint, or of model.init if `checkpoint` is empty. Throws UserError.
RunFiles open_evaluation(const config::RunConfig& config, const std::string& checkpoint);

// One rank of a run: plugins, groups, session, steps, validation, checkpoints. Used by `strata train`, `strata eval`
// and <strata/engine.hpp>.
class Run {
 public:
  // Makes the plugins, opens the data, connects the ranks and allocates the state. `resolved` must outlive it. Throws
  // UserError and EnvironmentError. [collective]
  Run(const resolve::ResolvedRun& resolved, RunFiles files, const stage::RankNumbers& place,
      const stage::MakeGroups& make_groups);

  // Sets the weights; every rank calls one of the two before the first step or validation. fill: weights from the
  // files, or random ones. resume: see checkpoint/resume.hpp. [collective]
  void fill();
  std::optional<checkpoint::Resumed> resume(const std::string& from);

  // Sets the function, called in each step and by agree_to_stop(), that returns the signal that stops this rank, or 0.
  // Called on every rank or on none.
  void stop_when(std::function<int()> requested) { stop_requested_ = std::move(requested); }

  // Trains on the next step's micro-batches and applies the precision policy's verdict. [collective] over the run;
  // blocks the host. Throws EnvironmentError when the policy ends the run, UserError when no target counts.
  report::StepRecord step();
  // Trains on the given micro-batches of this rank, train.accumulation of them.
  report::StepRecord step(const std::vector<data::TokenBatch>& batches);
  // Returns the signal by which the ranks agreed to stop, or 0. It is equal on all ranks after a step in which one was
  // asked to stop, because the request travels with the gradient's norm, and after agree_to_stop(), for work that takes
  // longer than a step, which returns it too. [collective] over the run; blocks the host.
  int stopped_by() const { return stopped_by_; }
  int agree_to_stop();

  // Returns this rank's micro-batches of a step, from the config's data.
  std::vector<data::TokenBatch> read(std::int64_t step) const;

  // Parts of step(), for steps that are carried out in parts: the input of step `step` without micro-batches and valid
  // tokens; a micro-batch on the device; the verdict and the record.
  step::StepInput scalars(std::int64_t step) const;
  MicroBatch on_device(std::int64_t step, std::int64_t micro_batch, const data::TokenBatch& batch) const;
  report::StepRecord conclude(const step::StepInput& input, const step::StepOutcome& outcome, double step_s);

  // True if a validation or a checkpoint is due after steps_done() steps; after the last step both are, if they have a
  // path.
  bool validation_due() const { return validation_ && is_due(steps_done_, config_.validation.every); }
  bool checkpoint_due() const {
    return !config_.checkpoint.path.empty() && is_due(steps_done_, config_.checkpoint.every);
  }
  // Returns the mean loss over validation.path, which must be set; empty when a rank was asked to stop. [collective]
  std::optional<report::ValidationResult> validate(const Validation::Progress& progress = {});
  // Saves a checkpoint in checkpoint.path, which must be set, and returns its folder. [collective]
  std::string save_checkpoint();
  // Tries the writes of saving and exporting before the first step: every rank writes to checkpoint.path, and rank 0
  // makes the folder of an export, unless its name is empty. Throws, the same on all ranks. [collective]
  void try_writing(const std::string& export_folder, const std::string& type = "float32");
  // Computes a loss of one micro-batch with the weights of the checkpoint after the last step and, if it is not finite,
  // marks the checkpoint. [collective]
  void prove_checkpoint();
  // Writes the weights to a new folder, in type `type`: see export_type(). [collective]
  void export_weights(const std::string& folder, const std::string& type = "float32");

  // Ends all operations of its groups, after an error. Nothing can be computed afterwards.
  void stop() { groups_->stop(); }

  std::map<std::string, stage::Metric> metrics() const { return plugins_.metrics(); }

  const config::RunConfig& config() const { return config_; }
  const stage::RankNumbers& place() const { return place_; }
  const Model& model() const { return *plugins_.model; }
  step::Session& session() { return session_; }
  const step::Session& session() const { return session_; }
  bool has_data() const { return data_.has_value(); }
  // Returns the number of steps made, including those before a resume; the next step has this number.
  std::int64_t steps_done() const { return steps_done_; }

 private:
  // Makes the group provider and compares the files that the ranks read.
  std::unique_ptr<group::GroupProvider> connected(const stage::MakeGroups& make_groups,
                                                  const plugins::PluginRegistry& registry);
  checkpoint::RunData data_of_run() const;
  report::StepRecord record_of(const step::StepInput& input, const step::StepOutcome& outcome, double step_s);
  bool judge(report::StepRecord& record);
  void check_updates_within_step(const step::StepInput& input, const step::StepOutcome& outcome) const;
  // True if an action with period `every` is due after `steps` steps.
  bool is_due(std::int64_t steps, std::int64_t every) const {
    return steps > 0 && (steps == config_.train.steps || (every > 0 && steps % every == 0));
  }
  step::StepInput input_of(std::int64_t step, const std::vector<data::TokenBatch>& batches) const;
  // True if the step after the next one follows it directly, so that look-ahead forwards are not discarded.
  bool another_follows() const;
  report::StepRecord make(const step::StepInput& input, const step::StepInput* next);

  const config::RunConfig& config_;
  stage::RankNumbers place_;
  RunFiles files_;
  stage::PluginSet plugins_;
  std::optional<data::Loader> data_;             // empty if the program brings its batches, and in an evaluation
  std::optional<data::Loader> validation_data_;  // moved into validation_
  std::unique_ptr<group::GroupProvider> groups_;
  step::Session session_;
  checkpoint::CheckpointSaver saver_;
  std::optional<Validation> validation_;
  std::int64_t steps_done_ = 0;
  std::int64_t updates_ = 0;            // number of steps that were not skipped
  std::int64_t optimizer_updates_ = 0;  // optimizer updates in all of them; several per step if stages update within it
  std::string not_finite_;              // the last step's loss, if it is not finite: "the loss of step 7"
  std::optional<step::StepInput> next_;  // input of the next step, read for look-ahead
  std::function<int()> stop_requested_;
  int stopped_by_ = 0;
};

}  // namespace strata::run
