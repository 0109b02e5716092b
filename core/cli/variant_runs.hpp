// defines: VariantRuns
// The runs behind a comparison: this program again, one variant after the other.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "report/comparison.hpp"

namespace strata::cli {

struct ComparedRun {
  std::string name;
  std::string config;                 // a file
  std::vector<std::string> settings;  // in the order in which they apply
};

// Starts `strata train` with its files in a folder that is gone at the end. A run ends with this process, whatever ends
// it. Both throw EnvironmentError with a run's last words when one fails.
class VariantRuns {
 public:
  // nproc: ranks to start; 0: one process, without a launcher.
  VariantRuns(int nproc, std::int64_t steps, std::int64_t warmup_steps);
  ~VariantRuns();
  VariantRuns(const VariantRuns&) = delete;
  VariantRuns& operator=(const VariantRuns&) = delete;

  // One run with every step on record: losses, norms, digests of gradients.
  void record(const ComparedRun& run, report::ComparedVariant& variant) const;
  // One run for its times: the median step's seconds are appended.
  void time(const ComparedRun& run, report::ComparedVariant& variant) const;

 private:
  std::vector<std::string> command(const ComparedRun& run, bool recorded) const;
  void train(const ComparedRun& run, bool recorded) const;
  std::string file(const std::string& name) const { return (folder_ / name).string(); }

  int nproc_;
  std::int64_t steps_;
  std::int64_t warmup_steps_;
  std::filesystem::path folder_;
};

}  // namespace strata::cli
