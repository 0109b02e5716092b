// Sink of CSV files, one for each figure, in the format of DeepSpeed's csv_monitor: Train_Samples_train_loss.csv begins
// with the line step,train_loss, and "step" counts samples.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "report/metric_sink.hpp"

namespace strata::report {

class CsvFolder final : public MetricSink {
 public:
  // Makes the folder and opens the figures' files in it for writing. A step trains on `global_batch` samples. Throws
  // UserError if a file cannot be made or written, or holds other content than a figure.
  CsvFolder(const std::string& folder, std::int64_t global_batch);

  std::string earlier_run() const override;
  void begin(std::int64_t steps_done) override;
  // Writes a line to each figure's file: losses, statistics of the layers, learning rate, gradient norm, seconds and
  // tokens/s of the step, those of the validation if there is one, and the plugins' metrics.
  void write(const StepRecord& record) override;
  void write(const StepValidation& validation) override;

 private:
  ReportFile& file_of(const std::string& name);
  void put(const std::string& figure, std::int64_t samples, double value);

  std::filesystem::path folder_;
  std::int64_t global_batch_;
  std::map<std::string, std::unique_ptr<ReportFile>> files_;  // by name
};

}  // namespace strata::report
