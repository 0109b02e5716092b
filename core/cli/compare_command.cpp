#include "cli/compare_command.hpp"

#include <unistd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/run_command.hpp"
#include "cli/variant_runs.hpp"
#include "config/variants.hpp"
#include "report/comparison_page.hpp"
#include "runtime/dry_run.hpp"

namespace strata::cli {

namespace {

constexpr double fp32_tolerance = 1e-5;

std::vector<config::Variant> variants_of_config(const std::string& file) {
  const config::Node layers = config::read_file(file);
  const config::Node* list = layers.get("compare");
  return list == nullptr ? std::vector<config::Variant>{} : config::read_variants(*list);
}

// Every combination of configs, --variant and --vary; a config's own `compare:` where neither is given.
std::vector<ComparedRun> runs_of(const CompareArguments& arguments) {
  std::vector<ComparedRun> runs;
  for (const std::string& file : arguments.configs) {
    std::vector<std::vector<config::Variant>> lists(1);
    for (const std::string& text : arguments.variants) lists[0].push_back({text, config::split_settings(text, "--variant")});
    for (const std::string& text : arguments.vary) lists.push_back(config::vary(text));
    if (arguments.variants.empty() && arguments.vary.empty()) lists[0] = variants_of_config(file);
    for (const config::Variant& variant : config::combine(lists)) {
      ComparedRun run{variant.name, file, arguments.settings};
      run.settings.insert(run.settings.end(), variant.settings.begin(), variant.settings.end());
      if (arguments.configs.size() > 1) run.name = file + (run.name.empty() ? "" : " ") + run.name;
      runs.push_back(std::move(run));
    }
  }
  if (runs.size() < 2)
    throw UserError("nothing is compared: give --vary KEY=A,B, --variant twice, two configs, or a config with a list `compare:`");
  return runs;
}

// What cannot run is said before anything does. Gives what the run's precision declares to be equal to.
double check(const ComparedRun& compared, int nproc) {
  RunArguments run;
  run.config = compared.config;
  run.settings = compared.settings;
  const PreparedRun prepared = prepare_run(run, {std::max(1, nproc), "--nproc", true});
  runtime::check_run(prepared.config, *prepared.registry);
  const auto& precision = prepared.registry->find(PluginKind::PrecisionPolicy, prepared.config.precision.name).manifest;
  return precision.equivalence.bound;
}

class Turns {
 public:
  Turns(const CompareArguments& arguments, std::vector<ComparedRun> runs)
      : arguments_(arguments), runs_(std::move(runs)), variant_runs_(arguments.nproc, arguments.steps, arguments.warmup_steps) {}

  report::Comparison run() {
    report::Comparison comparison;
    comparison.steps = arguments_.steps;
    comparison.warmup_steps = arguments_.warmup_steps;
    double declared = fp32_tolerance;
    for (const ComparedRun& run : runs_) declared = std::max(declared, check(run, arguments_.nproc));
    comparison.tolerance = arguments_.tolerance.value_or(declared);
    for (const ComparedRun& run : runs_) comparison.variants.emplace_back().name = run.name;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      say("what it computes", i);
      variant_runs_.record(runs_[i], comparison.variants[i]);
    }
    for (int turn = 0; turn < 2 * arguments_.rounds; ++turn)
      for (std::size_t i = 0; i < runs_.size(); ++i) {
        const std::size_t index = turn % 2 == 0 ? i : runs_.size() - 1 - i;
        say("round " + std::to_string(turn / 2 + 1) + " of " + std::to_string(arguments_.rounds), index);
        variant_runs_.time(runs_[index], comparison.variants[index]);
      }
    if (!arguments_.quiet && isatty(STDERR_FILENO) == 1) std::cerr << "\r\033[K" << std::flush;
    return comparison;
  }

 private:
  void say(const std::string& what, std::size_t index) const {
    if (arguments_.quiet) return;
    if (isatty(STDERR_FILENO) == 1)
      std::cerr << "\r\033[K" << what << ": " << runs_[index].name << std::flush;
    else
      std::cerr << what << ": " << runs_[index].name << "\n";
  }

  const CompareArguments& arguments_;
  std::vector<ComparedRun> runs_;
  VariantRuns variant_runs_;
};

// Opened before anything runs: a path that cannot be written is said at once.
std::ofstream page_file(const std::string& path) {
  std::ofstream file;
  if (path.empty()) return file;
  file.open(path);
  if (!file) throw UserError("--html " + path + ": cannot be written: " + std::strerror(errno));
  return file;
}

}  // namespace

int compare_command(const CompareArguments& arguments, std::ostream& out) {
  const report::TableFormat format = report::parse_table_format(arguments.format);
  std::vector<ComparedRun> runs = runs_of(arguments);
  std::ofstream page = page_file(arguments.html);
  const report::Comparison comparison = Turns(arguments, std::move(runs)).run();
  if (page.is_open()) {
    report::print_page(comparison, page);
    page.flush();
    if (!page) throw EnvironmentError(arguments.html + ": writing failed; is the disk full?");
  }
  if (format == report::TableFormat::Json) {
    out << report::to_json(comparison).dump(2) << "\n";
    return 0;
  }
  report::print(report::comparison_table(comparison, format), format, out);
  if (format == report::TableFormat::Text)
    out << comparison.pairs() << " timed runs of each in turns, " << arguments.steps << " steps each; bytes, RSS, CPU and sent are the largest rank's; "
        << "tolerance " << comparison.tolerance << "\n";
  return 0;
}

}  // namespace strata::cli
