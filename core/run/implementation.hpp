// What stands behind <strata/engine.hpp>.
#pragma once
#include <strata/engine.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/hugging_face.hpp"
#include "checkpoint/save_checkpoint.hpp"
#include "config/run_config.hpp"
#include "data/loader.hpp"
#include "group/group_provider.hpp"
#include "plugin_host/registry.hpp"
#include "run/evaluation.hpp"
#include "run/run.hpp"
#include "run/training.hpp"
#include "step/session.hpp"
#include "step/step_in_parts.hpp"

namespace strata {

// A resolved config and a registry that knows the program's own plugins.
struct ProgramConfig {
  std::shared_ptr<plugin_host::PluginRegistry> registry;
  config::RunConfig config;
};

// `model` may be null: the config then names one. Throws UserError.
ProgramConfig read_program_config(std::unique_ptr<Model> model, const std::string& config_file,
                                  std::vector<std::string> settings, std::vector<ProgramPlugin> plugins,
                                  const config::World& world);

// Throws the UserError of a call that cannot be: "FILE:LINE: engine.CALL: text".
[[noreturn]] void refuse(const char* call, const Engine::Where& where, const std::string& text);

class Engine::Implementation {
 public:
  // [collective]
  Implementation(ProgramConfig program, const runtime::RankPlace& place, const runtime::MakeGroups& make_groups);

  Loss forward(const Batch& batch, const Where& where);
  void backward(const Loss& loss, const Where& where);
  StepResult step(const Where& where);
  StepResult train_batch(const std::vector<Batch>& micro_batches, const Where& where);
  std::vector<Batch> batches(const Where& where) const;
  double evaluate(const Where& where);
  double evaluate(const std::vector<Batch>& micro_batches, const Where& where);
  std::string save_checkpoint(const Where& where);
  bool resume(const std::string& from, const Where& where);
  void export_weights(const std::string& folder, const Where& where);

  const runtime::RankPlace& place() const { return place_; }
  const config::RunConfig& config() const { return program_.config; }
  const runtime::Session& session() const { return session_; }
  std::int64_t steps_done() const { return steps_done_; }

 private:
  using Clock = std::chrono::steady_clock;
  void check_usable(const char* call, const Where& where) const;
  void check_between_steps(const char* call, const Where& where) const;
  void check_start(const char* call, const Where& where) const;
  data::TokenBatch checked(const Batch& batch, const char* call, const Where& where) const;
  StepResult result(const report::StepRecord& record);
  // Runs what cannot be taken up again in the middle, a part of a step for instance.
  template <typename Work>
  decltype(auto) part(Work&& work) {
    try {
      return std::forward<Work>(work)();
    } catch (...) {
      broken_ = true;
      throw;
    }
  }

  ProgramConfig program_;
  runtime::RankPlace place_;
  std::shared_ptr<const checkpoint::HuggingFaceFolder> folder_;  // of initial weights; null without
  runtime::PluginSet plugins_;
  std::optional<data::Loader> loader_;
  std::unique_ptr<runtime::GroupProvider> groups_;
  runtime::Session session_;
  runtime::Run run_;
  std::optional<runtime::StepInParts> parts_;  // nothing where a step cannot be cut into them
  checkpoint::CheckpointFolder checkpoints_;
  std::optional<runtime::CheckpointSaver> saver_;  // made when it is first used
  std::optional<runtime::Validation> validation_;  // made when it is first used
  std::uint64_t identity_;
  std::int64_t steps_done_ = 0;
  bool started_ = false;           // a step was begun, or a checkpoint was loaded
  std::int64_t forwards_ = 0;      // since the engine was made
  std::int64_t valid_tokens_ = 0;  // this rank's, of the step under way
  Clock::time_point begin_;        // of the step under way
  bool broken_ = false;
};

}  // namespace strata
