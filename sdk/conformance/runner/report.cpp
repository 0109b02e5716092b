#include "conformance/runner/report.hpp"

#include <strata/format.hpp>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace strata::conformance {

namespace {

using nlohmann::ordered_json;

bool passed(Status status) {
  return status == Status::Passed;
}
bool skipped(Status status) {
  return status == Status::Skipped;
}

std::string seconds_text(double seconds, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, seconds);
  return text;
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

std::string indented(const std::string& text, const std::string& before) {
  std::string lines = before;
  for (const char c : text) lines += c == '\n' ? "\n" + before : std::string(1, c);
  return lines;
}

// A path as a shell takes it.
std::string quoted(const std::string& text) {
  if (text.find_first_of(" '\"\\$&|;<>()*?[]!`~#") == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string replay_of(const std::string& file, const CaseResult& result, std::uint64_t seed) {
  return format("strata plugins check {} --seed {} --only {}{} --in-process", quoted(file), seed, result.name,
                result.outcome.replay.empty() ? "" : " --replay " + result.outcome.replay);
}

class TextReport final : public Report {
 public:
  TextReport(std::uint64_t seed, std::ostream& out) : seed_(seed), out_(out) {}

  void begin(const std::string& file) override {
    file_ = file;
    out_ << file << "\n" << std::flush;
  }
  void add(const CaseResult& result) override {
    const Outcome& outcome = result.outcome;
    std::string status = to_string(outcome.status);
    if (is_failure(outcome.status))
      std::transform(status.begin(), status.end(), status.begin(), [](unsigned char c) { return std::toupper(c); });
    out_ << "  " << padded(status, 9) << " " << padded(result.name, 36) << " " << result.sentence;
    if (outcome.seconds >= 1.0) out_ << " (" << seconds_text(outcome.seconds, 1) << " s)";
    out_ << "\n";
    if (!outcome.text.empty()) out_ << indented(outcome.text, "            ") << "\n";
    if (is_failure(outcome.status)) {
      if (!outcome.output.empty())
        out_ << "            its output:\n" << indented(outcome.output, "            | ") << "\n";
      out_ << "            again: " << replay_of(file_, result, seed_) << "\n";
    }
    out_ << std::flush;
  }
  void finish(double seconds) override {
    out_ << count(passed) << " passed, " << count(is_failure) << " failed, " << count(skipped) << " skipped in "
         << seconds_text(seconds, 1) << " s (seed " << seed_ << ")" << std::endl;
  }

 private:
  std::uint64_t seed_;
  std::ostream& out_;
  std::string file_;
};

class JsonReport final : public Report {
 public:
  JsonReport(std::uint64_t seed, std::ostream& out) : seed_(seed), out_(out) {}

  void finish(double seconds) override {
    ordered_json plugins = ordered_json::array();
    for (const PluginResult& plugin : results()) {
      ordered_json cases = ordered_json::array();
      for (const CaseResult& result : plugin.cases)
        cases.push_back({{"name", result.name},
                         {"sentence", result.sentence},
                         {"status", to_string(result.outcome.status)},
                         {"seconds", result.outcome.seconds},
                         {"text", result.outcome.text},
                         {"output", result.outcome.output},
                         {"replay", replay_of(plugin.file, result, seed_)}});
      plugins.push_back({{"plugin", plugin.plugin}, {"file", plugin.file}, {"cases", std::move(cases)}});
    }
    const ordered_json all = {{"seed", seed_},
                              {"seconds", seconds},
                              {"passed", count(passed)},
                              {"failed", count(is_failure)},
                              {"skipped", count(skipped)},
                              {"plugins", std::move(plugins)}};
    out_ << all.dump(2, ' ', false, ordered_json::error_handler_t::replace)
         << std::endl;  // a plugin's output may be any bytes
  }

 private:
  std::uint64_t seed_;
  std::ostream& out_;
};

// XML 1.0 has no place for control characters; what is no ASCII is written as it is when it is UTF-8, which plugins see
// to.
std::string escaped(const std::string& text) {
  std::string xml;
  for (const char c : text) {
    if (c == '&')
      xml += "&amp;";
    else if (c == '<')
      xml += "&lt;";
    else if (c == '>')
      xml += "&gt;";
    else if (c == '"')
      xml += "&quot;";
    else if (c == '\n')
      xml += "&#10;";
    else if (static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) >= 127)
      xml += '?';
    else
      xml += c;
  }
  return xml;
}

class JUnitReport final : public Report {
 public:
  JUnitReport(std::uint64_t seed, std::ostream& out) : seed_(seed), out_(out) {}

  void finish(double /*seconds*/) override {
    out_ << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n";
    for (const PluginResult& plugin : results()) write(plugin);
    out_ << "</testsuites>" << std::endl;
  }

 private:
  void write(const PluginResult& plugin) {
    const auto number = [&](auto which) {
      return std::count_if(plugin.cases.begin(), plugin.cases.end(),
                           [&](const CaseResult& one) { return which(one.outcome.status); });
    };
    double seconds = 0.0;
    for (const CaseResult& result : plugin.cases) seconds += result.outcome.seconds;
    const auto broken = number([](Status status) { return status == Status::Crashed || status == Status::TimedOut; });
    out_ << "<testsuite name=\"" << escaped(plugin.plugin.empty() ? plugin.file : plugin.plugin) << "\" tests=\""
         << plugin.cases.size() << "\" failures=\"" << number(is_failure) - broken << "\" errors=\"" << broken
         << "\" skipped=\"" << number(skipped) << "\" time=\"" << seconds_text(seconds, 3) << "\">\n";
    for (const CaseResult& result : plugin.cases) {
      const Outcome& outcome = result.outcome;
      out_ << "<testcase classname=\"" << escaped(plugin.plugin) << "\" name=\"" << escaped(result.name) << "\" time=\""
           << seconds_text(outcome.seconds, 3) << "\">";
      if (outcome.status == Status::Skipped) out_ << "<skipped message=\"" << escaped(outcome.text) << "\"/>";
      if (is_failure(outcome.status)) {
        const char* const kind = outcome.status == Status::Failed ? "failure" : "error";
        out_ << "<" << kind << " message=\"" << escaped(result.sentence + ": " + outcome.text) << "\">"
             << escaped(outcome.output + "\n" + replay_of(plugin.file, result, seed_)) << "</" << kind << ">";
      }
      out_ << "</testcase>\n";
    }
    out_ << "</testsuite>\n";
  }

  std::uint64_t seed_;
  std::ostream& out_;
};

}  // namespace

int Report::count(bool (*which)(Status)) const {
  int sum = 0;
  for (const PluginResult& plugin : results_)
    for (const CaseResult& result : plugin.cases) sum += which(result.outcome.status) ? 1 : 0;
  return sum;
}

std::unique_ptr<Report> make_report(const std::string& format, std::uint64_t seed, std::ostream& out) {
  if (format == "json") return std::make_unique<JsonReport>(seed, out);
  if (format == "junit") return std::make_unique<JUnitReport>(seed, out);
  return std::make_unique<TextReport>(seed, out);
}

}  // namespace strata::conformance
