#include "report/csv_folder.hpp"

#include <strata/error.hpp>
#include <strata/input_file.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <system_error>

#include "text/formatted.hpp"

namespace strata::report {

namespace {

constexpr std::array<std::string_view, 3> groups{"Train_Samples_", "Validation_Samples_", "Plugins_Samples_"};
constexpr std::string_view header = "step,";

bool is_figure(const std::string& name) {
  return name.ends_with(".csv") &&
         std::ranges::any_of(groups, [&](std::string_view group) { return name.starts_with(group); });
}

// The samples of a line, and fewer than any of the header's.
std::optional<std::int64_t> samples_of(const std::string& line) {
  if (line.starts_with(header)) return -1;
  std::int64_t samples = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), samples);
  if (error != std::errc() || *end != ',' || samples < 0) return {};
  return samples;
}

}  // namespace

CsvFolder::CsvFolder(const std::string& folder, std::int64_t global_batch)
    : folder_(folder), global_batch_(global_batch) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) throw_cannot_open("metrics.csv: the folder " + folder, "cannot be made", error.value());
  // As the first step will write it.
  file_of("Train_Samples_train_loss.csv");
  for (std::filesystem::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error))
    if (const std::string name = entry->path().filename().string(); is_figure(name)) file_of(name);
  for (const auto& [name, file] : files_)
    if (file->size() > 0 && file->beginning(header.size()) != header) file->refuse_content("a figure of a run");
}

std::string CsvFolder::earlier_run() const {
  for (const auto& [name, file] : files_)
    if (file->size() > 0) return file->name() + ": holds the figures of an earlier run; give another folder";
  return "";
}

void CsvFolder::begin(std::int64_t steps_done) {
  for (const auto& [name, file] : files_) file->keep_lines(samples_of, steps_done * global_batch_);
}

void CsvFolder::write(const StepRecord& record) {
  const std::int64_t samples = (record.step + 1) * global_batch_;
  put("Train/Samples/train_loss", samples, record.outcome.loss);
  if (record.outcome.auxiliary_loss) put("Train/Samples/auxiliary_loss", samples, *record.outcome.auxiliary_loss);
  for (const auto& [name, value] : record.outcome.statistics) put("Train/Samples/statistics/" + name, samples, value);
  put("Train/Samples/lr", samples, record.learning_rate);
  put("Train/Samples/grad_norm", samples, record.outcome.gradient_norm);
  put("Train/Samples/step_seconds", samples, record.step_s);
  put("Train/Samples/tokens_per_second", samples, record.tokens_per_s);
  if (record.validation) write(StepValidation{record.step, *record.validation});
  for (const auto& [name, metric] : record.metrics) put("Plugins/Samples/" + name, samples, metric.value);
}

void CsvFolder::write(const StepValidation& validation) {
  const std::int64_t samples = (validation.step + 1) * global_batch_;
  put("Validation/Samples/loss", samples, validation.result.loss);
  if (validation.result.auxiliary_loss)
    put("Validation/Samples/auxiliary_loss", samples, *validation.result.auxiliary_loss);
  for (const auto& [name, value] : validation.result.statistics)
    put("Validation/Samples/statistics/" + name, samples, value);
}

ReportFile& CsvFolder::file_of(const std::string& name) {
  std::unique_ptr<ReportFile>& file = files_[name];
  if (!file) file = std::make_unique<ReportFile>("metrics.csv", (folder_ / name).string());
  return *file;
}

void CsvFolder::put(const std::string& figure, std::int64_t samples, double value) {
  std::string name = figure;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '/' || c == ' '; }, '_');
  ReportFile& file = file_of(name + ".csv");
  if (file.size() == 0)
    file.write(std::string(header) + figure.substr(figure.find('/', figure.find('/') + 1) + 1) + "\n");
  file.write(text::formatted("%lld,%.17g\n", static_cast<long long>(samples), value));
}

}  // namespace strata::report
