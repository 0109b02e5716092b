#include "tools/train/csv_folder.hpp"

#include <strata/error.hpp>

#include <algorithm>

#include "text/formatted.hpp"

namespace strata::report {

CsvFolder::CsvFolder(const std::string& folder, bool append) : folder_(folder), append_(append) {
  if (folder.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error || !std::filesystem::is_directory(folder_))
    throw UserError("metrics.csv: the folder " + folder + " cannot be made" +
                    (error ? " (" + error.message() + ")" : "") + "; give one that you may write to");
}

void CsvFolder::write(const StepRecord& record, std::int64_t samples) {
  if (folder_.empty()) return;
  put("Train/Samples/train_loss", samples, record.outcome.loss);
  if (record.outcome.auxiliary_loss) put("Train/Samples/auxiliary_loss", samples, *record.outcome.auxiliary_loss);
  put("Train/Samples/lr", samples, record.learning_rate);
  put("Train/Samples/grad_norm", samples, record.outcome.gradient_norm);
  put("Train/Samples/step_seconds", samples, record.step_s);
  put("Train/Samples/tokens_per_second", samples, record.tokens_per_s);
  if (record.validation) put("Validation/Samples/loss", samples, record.validation->loss);
  if (record.validation && record.validation->auxiliary_loss)
    put("Validation/Samples/auxiliary_loss", samples, *record.validation->auxiliary_loss);
  for (const auto& [name, metric] : record.metrics) put("Plugins/Samples/" + name, samples, metric.value);
}

void CsvFolder::put(const std::string& figure, std::int64_t samples, double value) {
  std::string name = figure;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '/' || c == ' '; }, '_');
  const std::filesystem::path path = folder_ / (name + ".csv");
  std::ofstream& file = files_[name];
  if (!file.is_open()) {
    std::error_code absent;
    const bool begins = !append_ || std::filesystem::file_size(path, absent) == 0 || absent;
    file.open(path, begins ? std::ios::trunc : std::ios::app);
    if (begins) file << "step," << figure.substr(figure.find('/', figure.find('/') + 1) + 1) << "\n";
  }
  file << formatted("%lld,%.17g\n", static_cast<long long>(samples), value) << std::flush;
  if (!file) throw EnvironmentError(path.string() + ": writing failed; is the disk full, or the file another user's?");
}

}  // namespace strata::report
