// strata_compare: what `strata compare CONFIG --vary KEY=A,B` runs, the same training run with some values varied.
#include <unistd.h>
#include <strata/deepspeed.hpp>
#include <strata/error.hpp>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "compare/comparison_page.hpp"
#include "compare/promise.hpp"
#include "compare/variant_runs.hpp"
#include "compare/variants.hpp"
#include "dry_run/dry_run.hpp"
#include "dry_run/memory_budget.hpp"
#include "run/resolve_run.hpp"
#include "text/size.hpp"
#include "tools/commands/carry_out.hpp"
#include "tools/commands/leave.hpp"

namespace {

using namespace strata;
using namespace strata::cli;

constexpr double fp32_tolerance = 1e-5;

struct CompareArguments {
  std::vector<std::string> configs;   // several files are several variants
  std::vector<std::string> settings;  // a.b=c, for all variants
  std::vector<std::string> vary;      // a.b=A,B,...
  std::vector<std::string> variants;  // "a.b=A c=B"
  int nproc = 0;                      // ranks; 0: one process
  bool oversubscribe = false;
  int rounds = 8;
  std::int64_t steps = 0;  // timed steps of one run; 0: as many as take a second (the recorded run: fewest_steps)
  std::int64_t warmup_steps = 3;
  std::optional<double> tolerance;  // empty: the largest that their precision plugins declare, or fp32_tolerance
  std::string format = "table";
  std::string html;  // file for the HTML page; empty: none
  bool apart = false;
  bool quiet = false;
};

std::vector<config::Variant> variants_of_config(const std::string& file) {
  const config::Node tree = config::read_file(file);
  const config::Node* list = tree.get("compare");
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
  runtime::ResolvedRun run;
  double tolerance = 0.0;      // tolerance that the precision plugin declares
  std::int64_t needed = 0;     // bytes of the rank that needs the most
  std::int64_t available = 0;  // for one rank
};

// Checks every variant before any of them runs.
Checked check(const ComparedRun& compared, int nproc) {
  Checked checked;
  checked.run = runtime::read_run(compared.config, compared.settings, config::World::started_here(std::max(1, nproc)));
  const runtime::ResolvedRun& prepared = checked.run;
  runtime::check_run(prepared.config, *prepared.registry);
  const config::PluginChoice& precision = prepared.config.precision;
  checked.tolerance =
      plugin_host::equivalence_of(prepared.registry->find(PluginKind::PrecisionPolicy, precision.plugin).manifest,
                                  precision.options)
          .bound;
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

// First every variant trains once to record its losses, gradient norms and gradient digests per step. Then the variants
// are timed, twice in every round, in forward and in reverse order: all together, taking turns step by step
// (run_in_turns.hpp), if they fit in memory, else one after the other, as with `apart`. The runs of the baseline and of
// a variant in one half of a round form a pair; paired_ratio.hpp defines when they differ. Throws
// EnvironmentError with the last lines of a run that fails.
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
    std::vector<Checked> all;
    for (const ComparedRun& run : runs_) {
      const Checked& checked = all.emplace_back(check(run, arguments_.nproc));
      declared = std::max(declared, checked.tolerance);
      needed_ += checked.needed;
      available_ = checked.available;
    }
    comparison.tolerance = arguments_.tolerance.value_or(declared);
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      report::ComparedVariant& variant = comparison.variants.emplace_back();
      variant.name = runs_[i].name;
      if (i > 0) variant.promise = promise(all[i].run, all[0].run, declared);
    }
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
      if (!backwards) say(round, "all in turns");
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

int compare(const CompareArguments& arguments, std::ostream& out) {
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
  return 0;  // even if variants differ
}

void describe(CLI::App& command, CompareArguments& arguments) {
  command
      .add_option("configs", arguments.configs,
                  "Config file: .yaml, .toml or .json; several files are several variants")
      ->required();
  command
      .add_option("--vary", arguments.vary,
                  "Compare these values of a config key; the first is the baseline; repeatable: all combinations")
      ->type_name("KEY=A,B")
      ->allow_extra_args(false);
  command
      .add_option("--variant", arguments.variants,
                  "The settings of one variant; the first --variant is the baseline; repeatable")
      ->type_name("'KEY=A KEY=B'")
      ->allow_extra_args(false);
  add_set(command, arguments.settings, "Override one config value for all variants; repeatable");
  add_nproc(command, arguments.nproc, arguments.oversubscribe);
  command
      .add_option("--rounds", arguments.rounds,
                  "Rounds of measurement, two timed runs of each variant in each; 4 or more for a verdict on speed")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command.add_option("--steps", arguments.steps, "Timed steps per run (default: as many as take a second, 20 to 60)")
      ->check(CLI::Range(1, 1000000));
  command.add_option("--warmup-steps", arguments.warmup_steps, "Untimed steps at the start of each run")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000000));
  command
      .add_option(
          "--tolerance", arguments.tolerance,
          "Relative difference up to which losses, norms and gradients count as equal (default: the largest that the "
          "precision\nplugins declare, or 1e-5)")
      ->check(CLI::NonNegativeNumber);
  add_format(command, arguments.format);
  command.add_option("--html", arguments.html,
                     "Also write an HTML page with the table, loss curves and bar charts to this file");
  command.add_flag("--apart", arguments.apart,
                   "Run the variants one after the other. By default they run together and take turns step by step, if "
                   "they fit in\n"
                   "memory, so that a change in the machine's speed affects all alike");
  command.add_flag("--quiet", arguments.quiet, "Print no progress");
  command.footer(
      "Prints for every variant: step time and its ratio to the baseline with a 99 % interval, tokens/s, memory, bytes "
      "sent, and the\n"
      "first step where its losses, gradient norms or a parameter's gradient differ, and whether its plugins declared "
      "that they would\nnot. Memory that grows from step to step is named. Times are compared pairwise "
      "within "
      "a round by a\n"
      "signed-rank test at the 1 % level.\n"
      "  strata compare configs/quickstart.yaml --nproc 2 --vary partitioner.plugin=ddp,zero3\n"
      "  strata compare configs/report/stages.yaml --nproc 2 --set data.path=train.bin --html stages.html\n"
      "  strata compare run.yaml --variant 'parallel.pipeline=1' --variant 'parallel.pipeline=2 "
      "scheduler.plugin=1f1b'\n"
      "  strata compare run.yaml --vary partitioner.plugin=zero3,$PWD/build/libmine.so --format markdown");
}

}  // namespace

int main(int argc, char* argv[]) {
  accept_deepspeed_configs();
  CLI::App app("Compare training runs: speed, memory, traffic and numbers", "strata compare");
  CompareArguments arguments;
  describe(app, arguments);
  CommandLine line{app, {argv + 1, argv + argc}};
  line.action = [&] { return compare(arguments, std::cout); };
  leave(carry_out(line));
}
