#include "report/open_sinks.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <filesystem>
#include <functional>
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

// A sink that may be asked for. To add one, add a row in open_sinks().
struct Row {
  const char* option;  // option or key of its path, for errors
  std::string path;    // empty: it writes no file
  bool wanted;
  std::function<std::unique_ptr<MetricSink>()> open;
};

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
    throw UserError("{} {} lies in the folder of the export, {}, which must be empty until the end; give another path",
                    name, path, config.export_path);
}

std::vector<std::unique_ptr<MetricSink>> open_sinks(const ReportSettings& settings, const config::RunConfig& config) {
  const std::string &lines = settings.metrics_file, &csv = config.metrics_csv, &summary = settings.summary_file;
  const std::vector<Row> rows{
      {"train.log_every", "", settings.progress && config.train.log_every > 0,
       [&] {
         return std::make_unique<Progress>(settings.progress_on, settings.terminal, config.train.steps,
                                           config.train.log_every);
       }},
      {"--metrics", lines, !lines.empty(), [&] { return std::make_unique<MetricsFile>(lines); }},
      {"metrics.csv", csv, !csv.empty(), [&] { return std::make_unique<CsvFolder>(csv, config.train.global_batch); }},
      {"--summary", summary, !summary.empty() || settings.table != nullptr,
       [&] { return std::make_unique<SummarySink>(summary, settings.table, settings.warmup_steps, config); }}};
  if (!config.export_path.empty()) checkpoint::check_export_folder(config.export_path);
  check_outside_export(config, "checkpoint.path", config.checkpoint.path);
  for (const Row& row : rows) check_outside_export(config, row.option, row.path);  // before opening makes a folder
  std::vector<std::unique_ptr<MetricSink>> sinks;
  for (const Row& row : rows)
    if (row.wanted) sinks.push_back(row.open());
  check_apart(sinks);
  return sinks;
}

}  // namespace strata::report
