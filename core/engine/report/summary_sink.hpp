// Sink of a run's summary: a JSON file, and a table for people.
#pragma once
#include <iosfwd>
#include <string>

#include "report/metric_sink.hpp"
#include "report/run_summary.hpp"

namespace strata::report {

class SummarySink final : public MetricSink {
 public:
  // The file replaces an earlier summary; an empty `path`: no file. `table`: stream of the table; null: no table. The
  // first `warmup_steps` steps are excluded from the timings. `config` must outlive the sink. Throws UserError if the
  // file cannot be written or holds other content than a summary.
  SummarySink(const std::string& path, std::ostream* table, std::int64_t warmup_steps, const config::RunConfig& config);

  const ReportFile* file() const override { return &file_; }
  void begin(std::int64_t steps_done) override { summary_.first_step = steps_done; }
  void write(const StepRecord& record) override;
  void write(const StepValidation& validation) override;
  void finish(const RunEnd& end) override;

 private:
  ReportFile file_;
  std::ostream* table_;
  std::int64_t warmup_steps_;
  const config::RunConfig& config_;
  RunSummary summary_;
};

}  // namespace strata::report
