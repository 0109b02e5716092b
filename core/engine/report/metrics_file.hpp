// Sink of JSON lines: one object for each step.
#pragma once
#include <string>

#include "report/metric_sink.hpp"

namespace strata::report {

// A resumed run continues the file of the earlier run.
class MetricsFile final : public MetricSink {
 public:
  // Throws UserError if the file cannot be written or holds other content than metrics.
  explicit MetricsFile(const std::string& path);

  const ReportFile* file() const override { return &file_; }
  std::string earlier_run() const override;
  void begin(std::int64_t steps_done) override;
  void write(const StepRecord& record) override;
  void write(const StepValidation& validation) override;

 private:
  ReportFile file_;
};

}  // namespace strata::report
