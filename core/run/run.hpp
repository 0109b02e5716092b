#pragma once
#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <optional>
#include <vector>

#include <strata/data_source.hpp>

#include "config/run_config.hpp"
#include "data/loader.hpp"
#include "run/step_record.hpp"
#include "step/session.hpp"

namespace strata::runtime {

// The tokens of `data`, which is config.data or the validation's and of which `plugin` is made, cut into micro-batches
// as the config says. The plugin outlives the loader. Throws UserError.
data::Loader open_data(const config::RunConfig& config, const config::DataConfig& data,
                       const NamedPlugin<DataSource>& plugin);

// Reads all tokens, each rank a share of them, for ids that the model does not know. Throws UserError. [collective]
void check_tokens(Session& session, const data::TokenSource& source, std::int64_t vocabulary);

// A training run on one rank, from one step to the next.
class Run {
 public:
  // All three must outlive it. Without a loader the caller gives every step its micro-batches.
  Run(const config::RunConfig& config, Session& session, const data::Loader& loader)
      : config_(config), session_(session), loader_(&loader) {}
  Run(const config::RunConfig& config, Session& session) : config_(config), session_(session) {}

  // Asked before each step: the signal by which this rank was asked to stop, or 0.
  void stop_when(std::function<int()> requested) { stop_requested_ = std::move(requested); }

  // Puts a digest of the gradient into every step's record, see step/gradient_digest.hpp.
  void digest_gradients() {
    session_.digest_gradients();
    digests_ = true;
  }

  // Reads the step's micro-batches, trains on them and asks the precision policy for its verdict. When any rank was
  // asked to stop before it began, nothing is done on all ranks, and stopped_by() says why. [collective] over the run;
  // blocks the host. Throws EnvironmentError when the policy ends the run.
  std::optional<report::StepRecord> step(std::int64_t step);
  // The same on this rank's micro-batches, train.accumulation of them.
  std::optional<report::StepRecord> step(std::int64_t step, const std::vector<data::TokenBatch>& batches);
  // The signal that the ranks agreed to stop by, or 0.
  int stopped_by() const { return stopped_by_; }

  // This rank's micro-batches of a step, from the loader.
  std::vector<data::TokenBatch> read(std::int64_t step) const;

  // What step() is made of, for steps that are carried out in parts. The input without micro-batches and their tokens;
  // a micro-batch where layers compute; a step's valid tokens over the run, of which there is one at least
  // [collective]; the verdict and the record.
  StepInput scalars(std::int64_t step) const;
  MicroBatch place(std::int64_t step, std::int64_t micro_batch, const data::TokenBatch& batch) const;
  std::int64_t count_over_run(std::int64_t valid_tokens);
  static constexpr std::int64_t numbers_counted = 4;  // what that sums: valid tokens, and ranks by signal they got
  report::StepRecord conclude(const StepInput& input, const StepOutcome& outcome, double step_s);

  // Every rank's memory and traffic, by rank. [collective]
  std::vector<report::RankUsage> usage();

  // Optimizer updates so far: steps that were not skipped.
  std::int64_t updates() const { return updates_; }
  // Of a run that goes on from a checkpoint.
  void set_updates(std::int64_t updates) { updates_ = updates; }

 private:
  bool judge(report::StepRecord& record);

  const config::RunConfig& config_;
  Session& session_;
  const data::Loader* loader_ = nullptr;
  std::int64_t updates_ = 0;
  std::function<int()> stop_requested_;
  int stopped_by_ = 0;
  bool digests_ = false;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::clock_t processor_begin_ = std::clock();
};

}  // namespace strata::runtime
