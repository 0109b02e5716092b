// The runs behind a comparison: this program again, once for each variant.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tools/compare/comparison.hpp"

namespace strata::cli {

struct ComparedRun {
  std::string name;
  std::string config;                 // a file
  std::vector<std::string> settings;  // in the order in which they apply
};

// Starts `strata train` with its files in a folder that is gone at the end. A run ends with this process, whatever ends
// it. All throw EnvironmentError with a run's last words when one fails.
class VariantRuns {
 public:
  // nproc: ranks to start; 0: one process, without a launcher.
  VariantRuns(int nproc, bool oversubscribe, std::int64_t warmup_steps);
  ~VariantRuns();
  VariantRuns(const VariantRuns&) = delete;
  VariantRuns& operator=(const VariantRuns&) = delete;

  // One run with every step on record: losses, norms, digests of gradients.
  void record(const ComparedRun& run, std::int64_t steps, report::ComparedVariant& variant) const;
  // One run for its times: the median step's seconds are appended.
  void time(const ComparedRun& run, std::int64_t steps, report::ComparedVariant& variant) const;
  // One run of each for their times, all at once: they make their steps in turns, one run at a time (RunInTurns), forth
  // and back, or back and forth. Each one's median step's seconds are appended, and its ratio to the first: the median
  // over the steps of its time to that of the first's, which it stood beside.
  void time_together(const std::vector<ComparedRun>& runs, std::int64_t steps, bool backwards,
                     std::vector<report::ComparedVariant>& variants) const;

 private:
  std::vector<std::string> command(const ComparedRun& run, std::int64_t steps, const std::string& summary) const;
  // Throws with what the run wrote into `output`, unless its status is 0.
  void expect_success(const ComparedRun& run, int status, const std::string& output) const;
  std::string file(const std::string& name) const { return (folder_ / name).string(); }

  int nproc_;
  bool oversubscribe_;
  std::int64_t warmup_steps_;
  std::filesystem::path folder_;
};

}  // namespace strata::cli
