#include "report/metrics_file.hpp"

#include <strata/error.hpp>

#include <nlohmann/json.hpp>

#include "report/run_summary.hpp"
#include "text/json.hpp"

namespace strata::report {

namespace {

// Position of a line in the file: 2 x step for a step, one more for a validation after it; empty for any other line.
std::optional<std::int64_t> position_of(const std::string& line) {
  try {
    const nlohmann::json json = text::JsonDocument(line, {}).object().json();
    const auto step = json.find("step");
    if (step == json.end() || !step->is_number_integer()) return {};
    if (!json.contains("loss") && !json.contains("validation")) return {};
    return 2 * step->get<std::int64_t>() + (json.contains("loss") ? 0 : 1);
  } catch (const UserError&) {
    return {};
  }
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path) : file_("--metrics", path) {
  if (file_.size() == 0) return;
  constexpr std::size_t longest_line = std::size_t{16} << 20;
  const std::string text = file_.beginning(longest_line);
  const std::string::size_type end = text.find('\n');
  const std::optional<std::int64_t> first = position_of(text.substr(0, end));
  const bool cut = end == std::string::npos && text.starts_with(R"({"applied":)");  // by the end of an earlier run
  if (!first && !cut) file_.refuse_content("a run's metrics");
  if (first == 0)
    throw UserError("{}: counts steps from 0, as an earlier version of Strata did; give another path", file_.name());
}

std::string MetricsFile::earlier_run() const {
  return file_.size() == 0 ? "" : file_.name() + ": holds the metrics of an earlier run; give another path";
}

void MetricsFile::begin(std::int64_t steps_done) {
  file_.keep_lines(position_of, 2 * steps_done + 1);
}

void MetricsFile::write(const StepRecord& record) {
  file_.write(to_json(record).dump() + "\n");
}

void MetricsFile::write(const StepValidation& validation) {
  const nlohmann::json json = {{"step", validation.step + 1}, {"validation", to_json(validation.result)}};
  file_.write(json.dump() + "\n");
}

}  // namespace strata::report
