// What `strata train` writes beside a training: progress, metrics, CSV files, the summary.
#pragma once
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "run/training.hpp"
#include "tools/train/csv_folder.hpp"
#include "tools/train/gradient_digest.hpp"
#include "tools/train/progress.hpp"
#include "tools/train/rank_usage.hpp"
#include "tools/train/report_file.hpp"
#include "tools/train/run_summary.hpp"
#include "tools/train/step_trace.hpp"

namespace strata::report {

struct ReportSettings {
  // One JSON object a step; empty: none. A resumed run goes on with the file of the run before it: lines of the steps
  // that it makes again are dropped. Another run is not written into a file that holds metrics.
  std::string metrics_file;
  std::string summary_file;  // one JSON object at the end, in place of an earlier summary; empty: none
  // What every rank does in `trace_steps` steps after the warm-up, see step_trace.hpp; empty: nothing is traced.
  std::string trace_file;
  std::int64_t trace_steps = 10;
  bool quiet = false;                                 // no progress
  bool terminal = false;                              // progress as one line that is rewritten
  std::int64_t warmup_steps = 2;                      // left out of the summary's timings
  std::optional<double> predicted_step_s;             // what `offload: auto` expects
  std::function<void()> before_step;                  // called on every rank, not timed; may block, may be empty
  std::function<void(const StepRecord&)> after_step;  // called on every rank; may be empty
};

// Rank 0 writes the files and `out`.
class TrainingReport final : public runtime::TrainingObserver {
 public:
  // Opens the files and leaves their content. All but `resumes` must outlive it. `resumes`: the run goes on from
  // another. Throws UserError when a file cannot be written, or holds what must not be overwritten.
  TrainingReport(const ReportSettings& settings, const config::RunConfig& config, int rank, bool resumes,
                 std::ostream& out);

  // Before the first step, of a run that goes on from a checkpoint.
  void resumed(const runtime::Resumed& resumed);
  // Right before the first step, when nothing can be refused any more: earlier lines of the steps to come are dropped.
  // From here memory and processor time are measured. `digests`: those of every step's
  // gradient are among its metrics; making them takes two passes over it, in which the host waits.
  void begin(runtime::Run& run, bool digests);
  void before_step(runtime::Run& run) override;
  void validating(std::int64_t done, std::int64_t samples) override;
  void after_step(runtime::Run& run, StepRecord record) override;
  // After the last step; `saved_in`: the last checkpoint's folder, or empty. [collective]
  const RunSummary& finish(runtime::Run& run, const std::string& saved_in);
  void write_summary();

  // The files that are written, with what names them.
  std::vector<const ReportFile*> files() const { return {&metrics_, &summary_file_, &trace_.file()}; }

 private:
  void check_files(bool resumes) const;
  void add(const StepRecord& record);

  const ReportSettings& settings_;
  const config::RunConfig& config_;
  bool writes_;
  bool shows_;
  std::ostream& out_;
  ReportFile metrics_;
  CsvFolder csv_;
  ReportFile summary_file_;
  StepTrace trace_;
  std::optional<Progress> progress_;  // made when the first step's number is known
  std::optional<UsageMeter> meter_;   // since begin()
  std::optional<GradientDigest> digest_;
  RunSummary summary_;
};

}  // namespace strata::report
