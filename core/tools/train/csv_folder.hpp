// A run's figures as CSV files, one a figure, with the names that DeepSpeed's csv_monitor gives them, so that what
// reads those reads these: Train_Samples_train_loss.csv begins with the line step,train_loss, and "step" counts
// samples.
#pragma once
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "run/step_record.hpp"

namespace strata::report {

class CsvFolder {
 public:
  // An empty `folder`: nothing is written. Makes the folder; `append` leaves what its files hold, as a resumed run
  // wants, else a figure's first value begins its file anew. Throws UserError when the folder cannot be made.
  CsvFolder(const std::string& folder, bool append);

  // One line in each figure's file: loss, learning rate, gradient norm, seconds and tokens/s of the step, the
  // validation's loss where there was one, and the plugins' metrics. `samples` have been trained on after this step.
  // Throws EnvironmentError when writing fails.
  void write(const StepRecord& record, std::int64_t samples);

 private:
  void put(const std::string& figure, std::int64_t samples, double value);

  std::filesystem::path folder_;
  bool append_;
  std::map<std::string, std::ofstream> files_;
};

}  // namespace strata::report
