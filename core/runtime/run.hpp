// defines: open_data, Run
#pragma once
#include <cstdint>
#include <vector>

#include "config/run_config.hpp"
#include "data/loader.hpp"
#include "report/step_record.hpp"
#include "runtime/session.hpp"

namespace strata::runtime {

// The run's token file, cut into micro-batches as the config says. Throws UserError.
data::Loader open_data(const config::RunConfig& config);

// A training run on one rank, from one step to the next.
class Run {
 public:
  // All three must outlive it.
  Run(const config::RunConfig& config, Session& session, const data::Loader& loader)
      : config_(config), session_(session), loader_(loader) {}

  // Reads the step's micro-batches, trains on them and asks the precision policy for its verdict. [collective] over the
  // run; blocks the host. Throws EnvironmentError when the policy ends the run.
  report::StepRecord step(std::int64_t step);

  // Every rank's memory and traffic, by rank. [collective]
  std::vector<report::RankUsage> usage();

  // Optimizer updates so far: steps that were not skipped.
  std::int64_t updates() const { return updates_; }

 private:
  StepInput read(std::int64_t step);
  bool judge(report::StepRecord& record);

  const config::RunConfig& config_;
  Session& session_;
  const data::Loader& loader_;
  std::int64_t updates_ = 0;
};

}  // namespace strata::runtime
