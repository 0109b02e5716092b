// defines: open_data, Run
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "config/run_config.hpp"
#include "data/loader.hpp"
#include "report/step_record.hpp"
#include "runtime/session.hpp"

namespace strata::runtime {

// The token file of `data`, which is config.data or the validation's, cut into micro-batches as the config says. Throws UserError.
data::Loader open_data(const config::RunConfig& config, const config::DataConfig& data);

// A training run on one rank, from one step to the next.
class Run {
 public:
  // All three must outlive it.
  Run(const config::RunConfig& config, Session& session, const data::Loader& loader)
      : config_(config), session_(session), loader_(loader) {}

  // Asked before each step: the signal by which this rank was asked to stop, or 0.
  void stop_when(std::function<int()> requested) { stop_requested_ = std::move(requested); }

  // Reads the step's micro-batches, trains on them and asks the precision policy for its verdict. When any rank was
  // asked to stop before it began, nothing is done on all ranks, and stopped_by() says why. [collective] over the run;
  // blocks the host. Throws EnvironmentError when the policy ends the run.
  std::optional<report::StepRecord> step(std::int64_t step);
  // The signal that the ranks agreed to stop by, or 0.
  int stopped_by() const { return stopped_by_; }

  // Every rank's memory and traffic, by rank. [collective]
  std::vector<report::RankUsage> usage();

  // Optimizer updates so far: steps that were not skipped.
  std::int64_t updates() const { return updates_; }
  // Of a run that goes on from a checkpoint.
  void set_updates(std::int64_t updates) { updates_ = updates; }

 private:
  StepInput read(std::int64_t step);
  std::int64_t agree(std::int64_t valid_tokens);
  bool judge(std::int64_t step, const StepOutcome& outcome);

  const config::RunConfig& config_;
  Session& session_;
  const data::Loader& loader_;
  std::int64_t updates_ = 0;
  std::function<int()> stop_requested_;
  int stopped_by_ = 0;
};

}  // namespace strata::runtime
