// Interface of the receivers of a run's figures: progress lines, metrics, CSV files, the summary, observers of a
// program.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "report/report_file.hpp"
#include "report/step_record.hpp"

namespace strata::report {

// State of a run after its last step.
struct RunEnd {
  std::int64_t steps_done = 0;                   // number of steps, including those before a resume
  int stopped_by = 0;                            // signal that ended the run before train.steps, or 0
  std::string saved_in;                          // folder of the last checkpoint, or empty
  std::optional<double> predicted_step_s;        // duration of a step that `offload: auto` predicts
  std::vector<RankUsage> ranks;                  // by rank
  std::map<std::string, stage::Metric> metrics;  // metrics of rank 0's plugins
};

// Receives the figures of a run on one rank. The constructor opens the files and leaves their content, so that a path
// that cannot be written ends the run before its first step, and a run that is refused changes no file. All functions
// throw EnvironmentError if writing fails.
class MetricSink {
 public:
  virtual ~MetricSink() = default;
  // Returns the file that no other option may name; null: none.
  virtual const ReportFile* file() const { return nullptr; }
  // Returns the error text for figures of an earlier run, which only a resumed run may continue; empty: none.
  virtual std::string earlier_run() const { return ""; }
  // Called before the first step, when nothing can be refused any more. Drops the figures of steps after `steps_done`,
  // which the run makes again.
  virtual void begin(std::int64_t /*steps_done*/) {}
  // Called during a validation with the number of samples done.
  virtual void validating(std::int64_t /*done*/, std::int64_t /*samples*/) {}
  // Writes the figures of a step, with its validation if the record has one.
  virtual void write(const StepRecord& record) = 0;
  // Writes a validation that is not part of a step's record, because the program chose its time.
  virtual void write(const StepValidation& validation) = 0;
  // Called after the last step, with the run's exports complete.
  virtual void finish(const RunEnd& /*end*/) {}
};

}  // namespace strata::report
