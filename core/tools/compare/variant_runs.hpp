// The runs of a comparison: `strata train` is started for each variant.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tools/compare/comparison.hpp"

namespace strata::compare {

struct ComparedRun {
  std::string name;
  std::string config;                 // a file
  std::vector<std::string> settings;  // in the order in which they are applied
};

// Starts `strata train` with its files in a temporary folder. If this process ends for any reason, its runs end too.
// All functions throw EnvironmentError with the last lines of a failed run.
class VariantRuns {
 public:
  // nproc: number of ranks to start; 0: one process, without a launcher.
  VariantRuns(int nproc, bool oversubscribe, std::int64_t warmup_steps);
  ~VariantRuns();
  VariantRuns(const VariantRuns&) = delete;
  VariantRuns& operator=(const VariantRuns&) = delete;

  // Runs a variant once and records losses, norms and gradient digests of every step.
  void record(const ComparedRun& run, std::int64_t steps, ComparedVariant& variant)
      const;  // Runs a variant once, timed, and appends the median step time in seconds.
  void time(const ComparedRun& run, std::int64_t steps, ComparedVariant& variant)
      const;  // Runs each variant once, timed step by step in turn (RunInTurns), in forward and reverse order, or vice
              // versa if `backwards`. Appends each median step time and its ratio to the first run: the median over the
              // steps of the ratio of their times.

  void time_together(const std::vector<ComparedRun>& runs, std::int64_t steps, bool backwards,
                     std::vector<ComparedVariant>& variants) const;

 private:
  std::vector<std::string> command(const ComparedRun& run, std::int64_t steps, const std::string& summary) const;
  // Throws with the run's text in `output` unless `status` is 0 and the summary was written.
  void expect_success(const ComparedRun& run, int status, const std::string& output, const std::string& summary) const;
  std::string file(const std::string& name) const { return (folder_ / name).string(); }

  int nproc_;
  bool oversubscribe_;
  std::int64_t warmup_steps_;
  std::filesystem::path folder_;
};

}  // namespace strata::compare
