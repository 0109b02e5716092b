#include "tools/commands/compare_command.hpp"

#include <unistd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "run/dry_run.hpp"
#include "run/memory_budget.hpp"
#include "text/size.hpp"
#include "tools/commands/run_command.hpp"
#include "tools/commands/variant_runs.hpp"
#include "tools/compare/comparison_page.hpp"
#include "tools/compare/variants.hpp"

namespace strata::cli {

namespace {

constexpr double fp32_tolerance = 1e-5;

std::vector<config::Variant> variants_of_config(const std::string& file) {
  const config::Node layers = config::read_file(file);
  const config::Node* list = layers.get("compare");
  return list == nullptr ? std::vector<config::Variant>{} : config::read_variants(*list);
}

// All combinations of configs, --variant and --vary; without those two, the config's own `compare:`.
std::vector<ComparedRun> runs_of(const CompareArguments& arguments) {
  std::vector<ComparedRun> runs;
  for (const std::string& file : arguments.configs) {
    std::vector<std::vector<config::Variant>> lists(1);
    for (const std::string& text : arguments.variants)
      lists[0].push_back({text, config::split_settings(text, "--variant")});
    for (const std::string& text : arguments.vary) lists.push_back(config::vary(text));
    if (arguments.variants.empty() && arguments.vary.empty()) lists[0] = variants_of_config(file);
    for (const config::Variant& variant : config::every_combination(lists)) {
      ComparedRun run{variant.name, file, arguments.settings};
      run.settings.insert(run.settings.end(), variant.settings.begin(), variant.settings.end());
      if (arguments.configs.size() > 1) run.name = file + (run.name.empty() ? "" : " ") + run.name;
      runs.push_back(std::move(run));
    }
  }
  if (runs.size() < 2)
    throw UserError(
        "nothing to compare: give --vary KEY=A,B, --variant twice, two configs, or a config with a list `compare:`");
  return runs;
}

struct Checked {
  double tolerance = 0.0;      // tolerance that the precision plugin declares
  std::int64_t needed = 0;     // bytes of the rank that needs the most
  std::int64_t available = 0;  // for one rank
};

// Checks every variant before any of them runs.
Checked check(const ComparedRun& compared, int nproc) {
  const runtime::ResolvedRun prepared =
      runtime::read_run(compared.config, compared.settings, config::World::started_here(std::max(1, nproc)));
  runtime::check_run(prepared.config, *prepared.registry);
  const auto& precision =
      prepared.registry->find(PluginKind::PrecisionPolicy, prepared.config.precision.plugin).manifest;
  Checked checked{precision.equivalence.bound};
  for (const int rank : runtime::planned_ranks(prepared.config))
    checked.needed = std::max(checked.needed, runtime::dry_run(prepared.config, *prepared.registry, rank).needed);
  checked.available = runtime::memory_budget(prepared.config, 0, *prepared.registry, std::max(1, nproc)).bytes;
  return checked;
}

constexpr std::int64_t fewest_steps = 20, most_steps = 60;

// Starting a run takes a second or more, so many short steps hardly add time.
std::int64_t steps_of_a_second(const std::vector<report::ComparedVariant>& recorded) {
  double slowest = 0.0;
  for (const report::ComparedVariant& variant : recorded)
    slowest = std::max(slowest, variant.summary.at("median_step_s").get<double>());
  return std::clamp(static_cast<std::int64_t>(1.0 / std::max(slowest, 1e-6)), fewest_steps, most_steps);
}

class Comparing {
 public:
  Comparing(const CompareArguments& arguments, std::vector<ComparedRun> runs)
      : arguments_(arguments),
        runs_(std::move(runs)),
        variant_runs_(arguments.nproc, arguments.oversubscribe, arguments.warmup_steps) {}

  report::Comparison run() {
    report::Comparison comparison;
    comparison.warmup_steps = arguments_.warmup_steps;
    double declared = fp32_tolerance;
    for (const ComparedRun& run : runs_) {
      const Checked checked = check(run, arguments_.nproc);
      declared = std::max(declared, checked.tolerance);
      needed_ += checked.needed;
      available_ = checked.available;
    }
    comparison.tolerance = arguments_.tolerance.value_or(declared);
    for (const ComparedRun& run : runs_) comparison.variants.emplace_back().name = run.name;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      say("what it computes", runs_[i].name);
      variant_runs_.record(runs_[i], arguments_.steps > 0 ? arguments_.steps : fewest_steps, comparison.variants[i]);
    }
    comparison.steps = arguments_.steps > 0 ? arguments_.steps : steps_of_a_second(comparison.variants);
    comparison.apart = why_apart();
    for (int turn = 0; turn < 2 * arguments_.rounds; ++turn) time(turn, comparison);
    if (!arguments_.quiet && isatty(STDERR_FILENO) == 1) std::cerr << "\r\033[K" << std::flush;
    return comparison;
  }

 private:
  // Runs that take turns are all in memory at the same time.
  std::string why_apart() const {
    if (arguments_.apart) return "--apart";
    if (needed_ <= available_) return "";
    return "all together need " + config::format_bytes(needed_) + " of memory per rank, " +
           config::format_bytes(available_) + " are free";
  }

  void time(int turn, report::Comparison& comparison) {
    const bool backwards = turn % 2 == 1;
    const std::string round = "round " + std::to_string(turn / 2 + 1) + " of " + std::to_string(arguments_.rounds);
    if (comparison.apart.empty()) {
      say(round, "all in turns");
      return variant_runs_.time_together(runs_, comparison.steps, backwards, comparison.variants);
    }
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      const std::size_t index = backwards ? runs_.size() - 1 - i : i;
      say(round, runs_[index].name);
      variant_runs_.time(runs_[index], comparison.steps, comparison.variants[index]);
    }
  }

  void say(const std::string& what, const std::string& name) const {
    if (arguments_.quiet) return;
    if (isatty(STDERR_FILENO) == 1)
      std::cerr << "\r\033[K" << what << ": " << name << std::flush;
    else
      std::cerr << what << ": " << name << "\n";
  }

  const CompareArguments& arguments_;
  std::vector<ComparedRun> runs_;
  VariantRuns variant_runs_;
  std::int64_t needed_ = 0;     // bytes per rank, of all variants together
  std::int64_t available_ = 0;  // per rank
};

// Opens the file before anything runs, so that a bad path fails at once.
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
  const report::Comparison comparison = Comparing(arguments, std::move(runs)).run();
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
  if (format == report::TableFormat::Text) out << report::account_of_times(comparison) << "\n";
  return 0;
}

}  // namespace strata::cli
