#include "report/open_sinks.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "checkpoint/hugging_face.hpp"
#include "report/csv_folder.hpp"
#include "report/metrics_file.hpp"
#include "report/progress.hpp"
#include "report/summary_sink.hpp"

namespace strata::report {

namespace {

std::filesystem::path canonical(const std::string& path) {
  std::error_code error;
  const std::filesystem::path name = std::filesystem::weakly_canonical(std::filesystem::absolute(path, error), error);
  return name.has_filename() ? name : name.parent_path();  // "out/" is "out"
}

// Before anything is opened, since opening makes files and folders.
void check_paths(const ReportSettings& settings, const config::RunConfig& config) {
  if (config.export_path.empty()) return;
  checkpoint::check_export_folder(config.export_path);
  check_outside_export(config, "checkpoint.path", config.checkpoint.path);
  check_outside_export(config, "metrics.csv", config.metrics_csv);
  check_outside_export(config, "--metrics", settings.metrics_file);
  check_outside_export(config, "--summary", settings.summary_file);
}

void check_apart(const std::vector<std::unique_ptr<MetricSink>>& sinks) {
  for (auto one = sinks.begin(); one != sinks.end(); ++one)
    for (auto other = one + 1; other != sinks.end(); ++other)
      if ((*one)->file() != nullptr && (*other)->file() != nullptr) (*one)->file()->check_apart(*(*other)->file());
}

}  // namespace

void check_outside_export(const config::RunConfig& config, const std::string& name, const std::string& path) {
  if (config.export_path.empty() || path.empty()) return;
  const std::filesystem::path folder = canonical(config.export_path), other = canonical(path);
  if (std::ranges::mismatch(folder, other).in1 == folder.end())
    throw UserError(name + " " + path + " lies in the folder of the export, " + config.export_path +
                    ", which must be empty until the end; give it another place");
}

std::vector<std::unique_ptr<MetricSink>> open_sinks(const ReportSettings& settings, const config::RunConfig& config) {
  check_paths(settings, config);
  std::vector<std::unique_ptr<MetricSink>> sinks;
  if (settings.progress && config.train.log_every > 0)
    sinks.push_back(std::make_unique<Progress>(settings.progress_on, settings.terminal, config.train.steps,
                                               config.train.log_every));
  if (!settings.metrics_file.empty()) sinks.push_back(std::make_unique<MetricsFile>(settings.metrics_file));
  if (!config.metrics_csv.empty())
    sinks.push_back(std::make_unique<CsvFolder>(config.metrics_csv, config.train.global_batch));
  if (!settings.summary_file.empty() || settings.table != nullptr)
    sinks.push_back(
        std::make_unique<SummarySink>(settings.summary_file, settings.table, settings.warmup_steps, config));
  check_apart(sinks);
  return sinks;
}

}  // namespace strata::report
