// The sinks that a run's config and its command select.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "config/run_config.hpp"
#include "report/metric_sink.hpp"

namespace strata::report {

// Choices of the command or program that trains, in addition to the config's keys. They are equal on all ranks of a
// run, except `progress` and, with a `table`, `summary_file`.
struct ReportSettings {
  std::string metrics_file;             // JSON lines, one object for each step; empty: none
  bool digests = false;                 // in the JSON lines: fingerprints of the gradients, see gradient_digest.hpp
  std::string summary_file;             // JSON object at the end; empty: none
  std::ostream* table = nullptr;        // stream of the summary's table at the end; null: none
  std::int64_t warmup_steps = 2;        // first steps to exclude from the summary's timings
  bool progress = true;                 // progress lines
  std::ostream* progress_on = nullptr;  // stream of progress lines; null: the log
  bool terminal = false;                // progress as one line that is rewritten

  // True if the usage of memory and links is part of each step's record, or of the run's end; both are collective.
  bool usage_of_steps() const { return !metrics_file.empty(); }
  bool usage_of_run() const { return usage_of_steps() || !summary_file.empty() || table != nullptr; }
};

// Opens the sinks; called on the rank that writes, rank 0. `config` must outlive them. Throws UserError if a file
// cannot be written, holds other content, is named twice or lies in the folder of the export.
std::vector<std::unique_ptr<MetricSink>> open_sinks(const ReportSettings& settings, const config::RunConfig& config);

// Throws UserError if `path`, which the option or key `name` gives, lies in the folder of the config's export: an
// export replaces an empty folder. An empty path is accepted.
void check_outside_export(const config::RunConfig& config, const std::string& name, const std::string& path);

}  // namespace strata::report
