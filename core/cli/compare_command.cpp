#include "cli/compare_command.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "cli/run_command.hpp"
#include "config/size.hpp"
#include "report/paired_ratio.hpp"
#include "report/step_record.hpp"
#include "report/table.hpp"
#include "runtime/dry_run.hpp"

namespace strata::cli {

namespace {

using report::PairedRatio;

// One choice of each varied key.
struct Variant {
  std::vector<std::string> settings;
  std::string name;
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

// Every combination of the varied values, the first values first.
std::vector<Variant> variants_of(const std::vector<std::string>& vary) {
  std::vector<Variant> variants{{}};
  for (const std::string& text : vary) {
    const std::size_t equals = text.find('=');
    const std::vector<std::string> values =
        equals == std::string::npos ? std::vector<std::string>{} : split(text.substr(equals + 1), ',');
    if (equals == 0 || values.size() < 2 || std::find(values.begin(), values.end(), "") != values.end())
      throw UserError(
          "--vary " + text +
          ": KEY=A,B is expected, with two or more values to compare, such as partitioner.plugin=ddp,zero3");
    std::vector<Variant> product;
    for (const Variant& variant : variants)
      for (const std::string& value : values) {
        Variant next = variant;
        next.settings.push_back(text.substr(0, equals + 1) + value);
        next.name += (next.name.empty() ? "" : " ") + text.substr(0, equals + 1) + value;
        product.push_back(std::move(next));
      }
    variants = std::move(product);
  }
  return variants;
}

// A folder that is gone at the end.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "strata-compare-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr)
      throw EnvironmentError("cannot make a folder for the runs, " + name + ": " + std::strerror(errno));
    path_ = name;
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

// What a run leaves behind for the comparison.
struct RunResult {
  double median_step_s = 0.0;
  nlohmann::json summary;
  std::vector<double> losses;
  std::vector<double> norms;  // of the run that is recorded step by step
};

class Comparison {
 public:
  Comparison(const CompareArguments& arguments, std::vector<Variant> variants)
      : arguments_(arguments), variants_(std::move(variants)) {}

  void run() {
    for (const Variant& variant : variants_) check(variant);
    for (const Variant& variant : variants_) {
      say("what it computes", variant);
      recorded_.push_back(train(variant, true));
    }
    times_.resize(variants_.size());
    for (int round = 0; round < arguments_.rounds; ++round)
      for (std::size_t turn = 0; turn < variants_.size(); ++turn) {
        const std::size_t index = round % 2 == 0 ? turn : variants_.size() - 1 - turn;
        say("round " + std::to_string(round + 1) + " of " + std::to_string(arguments_.rounds), variants_[index]);
        times_[index].push_back(train(variants_[index], false).median_step_s);
      }
    if (!arguments_.quiet && isatty(STDERR_FILENO) == 1) std::cerr << "\r\033[K" << std::flush;
  }

  void print(std::ostream& out) const {
    const report::TableFormat format = report::parse_table_format(arguments_.format);
    if (format == report::TableFormat::Json) {
      out << json().dump(2) << "\n";
      return;
    }
    report::Table table;
    table.columns = {{"variant"},          {"step s", true},   {"time / first", true}, {"99 %"},  {"verdict"},
                     {"peak bytes", true}, {"peak RSS", true}, {"sent a step", true},  {"losses"}};
    for (std::size_t i = 0; i < variants_.size(); ++i) table.rows.push_back(row(i, format));
    report::print(table, format, out);
    if (format == report::TableFormat::Text)
      out << arguments_.rounds << " rounds of " << arguments_.steps
          << " timed steps in turns; peak bytes, RSS and sent of the largest rank\n";
  }

 private:
  // What cannot run is said before anything does.
  void check(const Variant& variant) const {
    RunArguments run;
    run.config = arguments_.config;
    run.settings = arguments_.settings;
    run.settings.insert(run.settings.end(), variant.settings.begin(), variant.settings.end());
    const PreparedRun prepared = prepare_run(run, {std::max(1, arguments_.nproc), "--nproc"});
    runtime::check_run(prepared.config, *prepared.registry);
  }

  void say(const std::string& what, const Variant& variant) const {
    if (arguments_.quiet) return;
    if (isatty(STDERR_FILENO) == 1)
      std::cerr << "\r\033[K" << what << ": " << variant.name << std::flush;
    else
      std::cerr << what << ": " << variant.name << "\n";
  }

  std::vector<std::string> command(const Variant& variant, bool recorded) const {
    std::vector<std::string> words{"strata",  "train",     arguments_.config,
                                   "--quiet", "--summary", folder_.file("summary.json")};
    if (arguments_.nproc > 0) words.insert(words.end(), {"--nproc", std::to_string(arguments_.nproc)});
    if (recorded) words.insert(words.end(), {"--metrics", folder_.file("metrics.jsonl")});
    words.insert(words.end(), {"--warmup-steps", std::to_string(arguments_.warmup_steps)});
    for (const std::vector<std::string>* settings : {&arguments_.settings, &variant.settings})
      for (const std::string& setting : *settings) words.insert(words.end(), {"--set", setting});
    words.insert(words.end(), {"--set", "train.steps=" + std::to_string(arguments_.steps + arguments_.warmup_steps)});
    return words;
  }

  // Runs this program with its output in a file. The child ends with us, whatever ends us.
  int execute(std::vector<std::string> words, const std::string& output) const {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const int file = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) throw EnvironmentError(output + ": " + std::strerror(errno));
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != parent || dup2(file, STDOUT_FILENO) < 0 || dup2(file, STDERR_FILENO) < 0) _exit(127);
      execv("/proc/self/exe", arguments.data());
      _exit(127);
    }
    close(file);
    if (child < 0) throw EnvironmentError(std::string("cannot start a run: ") + std::strerror(errno));
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  RunResult train(const Variant& variant, bool recorded) const {
    const std::string output = folder_.file("output");
    if (const int status = execute(command(variant, recorded), output); status != 0) {
      std::ifstream file(output);
      std::string text{std::istreambuf_iterator<char>(file), {}};
      while (text.ends_with('\n')) text.pop_back();
      if (text.starts_with("strata: ")) text.erase(0, 8);
      throw EnvironmentError("the run with " + variant.name + " ended with exit status " + std::to_string(status) +
                             ": " + text);
    }
    RunResult result;
    std::ifstream summary(folder_.file("summary.json"));
    result.summary = nlohmann::json::parse(summary);
    result.median_step_s = result.summary.at("median_step_s");
    std::ifstream metrics(folder_.file("metrics.jsonl"));
    for (std::string line; recorded && std::getline(metrics, line);) {
      const nlohmann::json record = nlohmann::json::parse(line);
      const auto number = [&](const char* name) {
        return record.at(name).is_null() ? NAN : record.at(name).get<double>();
      };
      result.losses.push_back(number("loss"));
      result.norms.push_back(number("grad_norm"));
    }
    return result;
  }

  // The first step whose loss or norm is further from the baseline's than the tolerance, and the largest difference.
  struct Difference {
    double largest = 0.0;
    std::optional<std::size_t> first;
    bool equal_bits = true;
  };
  Difference difference(std::size_t index) const {
    Difference result;
    const auto compare = [&](const std::vector<double>& values, const std::vector<double>& baseline) {
      for (std::size_t step = 0; step < values.size(); ++step) {
        if (values[step] == baseline[step] || (std::isnan(values[step]) && std::isnan(baseline[step]))) continue;
        result.equal_bits = false;
        const double relative = std::abs(values[step] - baseline[step]) / std::max(std::abs(baseline[step]), 1e-30);
        result.largest = std::max(result.largest, std::isnan(relative) ? INFINITY : relative);
        if (!(relative <= arguments_.tolerance)) result.first = std::min(result.first.value_or(step), step);
      }
    };
    compare(recorded_[index].losses, recorded_.front().losses);
    compare(recorded_[index].norms, recorded_.front().norms);
    return result;
  }

  std::string losses_text(std::size_t index) const {
    if (index == 0) return "baseline";
    const Difference found = difference(index);
    if (found.equal_bits) return "equal bits";
    char text[96];
    if (!found.first) {
      std::snprintf(text, sizeof text, "equal to %.1e", found.largest);
    } else {
      std::snprintf(text, sizeof text, "differ from step %zu on, by up to %.1e", *found.first + 1, found.largest);
    }
    return text;
  }

  static std::string verdict(const PairedRatio& ratio) {
    char text[64];
    if (!ratio.slower() && !ratio.faster()) return "no difference beyond noise";
    std::snprintf(text, sizeof text, "%s by %.1f %%", ratio.slower() ? "slower" : "faster",
                  100.0 * std::abs(ratio.ratio - 1.0));
    return text;
  }

  std::int64_t largest(std::size_t index, const auto& of_rank) const {
    std::int64_t value = 0;
    const nlohmann::json& summary = recorded_[index].summary;
    for (std::size_t rank = 0; rank < summary.at("memory").size(); ++rank)
      value = std::max<std::int64_t>(value, of_rank(summary, rank));
    return value;
  }
  std::int64_t peak_bytes(std::size_t index) const {
    return largest(index, [](const nlohmann::json& summary, std::size_t rank) {
      std::int64_t sum = 0;
      for (const auto& tier : summary["memory"][rank]["total_peak_bytes"]) sum += tier.get<std::int64_t>();
      return sum;
    });
  }
  std::int64_t peak_rss(std::size_t index) const {
    return largest(index, [](const nlohmann::json& summary, std::size_t rank) {
      return static_cast<std::int64_t>(summary["memory"][rank]["peak_rss_mib"].get<double>() * 1024.0 * 1024.0);
    });
  }
  std::int64_t sent_a_step(std::size_t index) const {
    return largest(index, [&](const nlohmann::json& summary, std::size_t rank) {
      return summary["sent"][rank]["total"].get<std::int64_t>() / (arguments_.steps + arguments_.warmup_steps);
    });
  }

  std::vector<std::string> row(std::size_t index, report::TableFormat format) const {
    const auto bytes = [&](std::int64_t count) {
      return format == report::TableFormat::Csv ? std::to_string(count) : config::format_bytes(count);
    };
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.4f", report::median(times_[index]));
    std::vector<std::string> cells{variants_[index].name, seconds, "1", "", "baseline"};
    if (index > 0) {
      const PairedRatio ratio = report::paired_ratio(times_[index], times_.front());
      char text[64];
      std::snprintf(text, sizeof text, "%.3f", ratio.ratio);
      cells[2] = text;
      std::snprintf(text, sizeof text, "%.3f .. %.3f", ratio.low, ratio.high);
      cells[3] = text;
      cells[4] = verdict(ratio);
    }
    cells.insert(cells.end(),
                 {bytes(peak_bytes(index)), bytes(peak_rss(index)), bytes(sent_a_step(index)), losses_text(index)});
    return cells;
  }

  nlohmann::json json() const {
    nlohmann::json all = {{"rounds", arguments_.rounds},
                          {"steps", arguments_.steps},
                          {"tolerance", arguments_.tolerance},
                          {"variants", nlohmann::json::array()}};
    for (std::size_t i = 0; i < variants_.size(); ++i) {
      nlohmann::json variant = {{"settings", variants_[i].settings}, {"median_step_s", report::median(times_[i])},
                                {"round_step_s", times_[i]},         {"losses", recorded_[i].losses},
                                {"grad_norms", recorded_[i].norms},  {"peak_bytes", peak_bytes(i)},
                                {"peak_rss_bytes", peak_rss(i)},     {"sent_a_step", sent_a_step(i)}};
      if (i > 0) {
        const PairedRatio ratio = report::paired_ratio(times_[i], times_.front());
        const Difference found = difference(i);
        variant["ratio"] = {
            {"value", ratio.ratio}, {"low", ratio.low}, {"high", ratio.high}, {"verdict", verdict(ratio)}};
        variant["difference"] = {
            {"largest", std::isfinite(found.largest) ? nlohmann::json(found.largest) : nlohmann::json(nullptr)},
            {"equal_bits", found.equal_bits},
            {"first_step", found.first ? nlohmann::json(*found.first) : nlohmann::json(nullptr)}};
      }
      all["variants"].push_back(std::move(variant));
    }
    return all;
  }

  const CompareArguments& arguments_;
  std::vector<Variant> variants_;
  ScratchFolder folder_;
  std::vector<RunResult> recorded_;         // by variant
  std::vector<std::vector<double>> times_;  // by variant, by round
};

}  // namespace

int compare_command(const CompareArguments& arguments, std::ostream& out) {
  report::parse_table_format(arguments.format);
  std::vector<Variant> variants = variants_of(arguments.vary);
  if (variants.size() < 2)
    throw UserError("nothing is compared: give --vary KEY=A,B, such as --vary partitioner.plugin=ddp,zero3");
  Comparison comparison(arguments, std::move(variants));
  comparison.run();
  comparison.print(out);
  return 0;
}

}  // namespace strata::cli
