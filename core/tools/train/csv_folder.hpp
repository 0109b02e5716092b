// A run's figures as CSV files, one a figure, with the names that DeepSpeed's csv_monitor gives them, so that what
// reads those reads these: Train_Samples_train_loss.csv begins with the line step,train_loss, and "step" counts
// samples.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "run/step_record.hpp"
#include "tools/train/report_file.hpp"

namespace strata::report {

class CsvFolder {
 public:
  // An empty `folder`: nothing is written. Makes the folder and opens the figures' files that it holds, for writing.
  // Throws UserError when one of them cannot be made or written, is something else, or is of an earlier run and this
  // run does not resume.
  CsvFolder(const std::string& folder, bool resumes);

  // Before the first step: drops the lines of more than `samples` samples, which a resumed run makes again. Throws
  // EnvironmentError.
  void begin(std::int64_t samples);
  // One line in each figure's file: loss, learning rate, gradient norm, seconds and tokens/s of the step, the
  // validation's loss where there was one, and the plugins' metrics. `samples` have been trained on after this step.
  // Throws EnvironmentError when writing fails.
  void write(const StepRecord& record, std::int64_t samples);

 private:
  ReportFile& file_of(const std::string& name);
  void put(const std::string& figure, std::int64_t samples, double value);

  std::filesystem::path folder_;
  std::map<std::string, std::unique_ptr<ReportFile>> files_;  // by name
};

}  // namespace strata::report
