// strata_compare: what `strata compare CONFIG --vary KEY=A,B` runs, the same training run with some values varied.
#include <strata/deepspeed.hpp>
#include <strata/error.hpp>

#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "report/report_file.hpp"
#include "tools/command/carry_out.hpp"
#include "tools/command/leave.hpp"
#include "tools/compare/comparison_page.hpp"
#include "tools/compare/measure.hpp"
#include "tools/compare/provenance.hpp"
#include "tools/compare/variants.hpp"
#include "tools/ranks/nproc.hpp"

namespace {

using namespace strata;
using namespace strata::cli;
using namespace strata::compare;

struct CompareArguments {
  std::vector<std::string> configs;   // several files are several variants
  std::vector<std::string> settings;  // a.b=c, for all variants
  std::vector<std::string> vary;      // a.b=A,B,...
  std::vector<std::string> variants;  // "a.b=A c=B"
  MeasureOptions measure;
  std::string format = "table";
  std::string html;                // file for the HTML page; empty: none
  std::vector<std::string> words;  // the command line
};

std::vector<compare::Variant> variants_of_config(const std::string& file) {
  const config::Node tree = config::read_file(file);
  const config::Node* list = tree.get("compare");
  return list == nullptr ? std::vector<compare::Variant>{} : compare::read_variants(*list);
}

// All combinations of configs, --variant and --vary; without those two, the config's own `compare:`.
std::vector<ComparedRun> runs_of(const CompareArguments& arguments) {
  std::vector<ComparedRun> runs;
  for (const std::string& file : arguments.configs) {
    std::vector<std::vector<compare::Variant>> lists(1);
    for (const std::string& text : arguments.variants)
      lists[0].push_back({text, compare::split_settings(text, "--variant")});
    for (const std::string& text : arguments.vary) lists.push_back(compare::vary(text));
    if (arguments.variants.empty() && arguments.vary.empty()) lists[0] = variants_of_config(file);
    for (const compare::Variant& variant : compare::every_combination(lists)) {
      ComparedRun run{variant.name, file, arguments.settings};
      run.settings.insert(run.settings.end(), variant.settings.begin(), variant.settings.end());
      if (arguments.configs.size() > 1) run.name = file + (run.name.empty() ? "" : " ") + run.name;
      runs.push_back(std::move(run));
    }
  }
  if (runs.size() < 2)
    throw UserError(
        "nothing to compare: give --vary KEY=A,B, --variant twice, two configs, or a config with a list `compare:`");
  std::vector<std::string> names;
  for (const ComparedRun& run : runs) names.push_back(run.name);
  names = compare::short_names(names);
  for (std::size_t i = 0; i < runs.size(); ++i) runs[i].name = names[i];
  return runs;
}

// Throws UserError for a file that holds something else than an earlier page.
void check_page(const report::ReportFile& page) {
  const std::string begin = page.beginning(512);
  if (!begin.empty() && !(begin.starts_with("<!doctype html>") && begin.find("<title>Strata") != std::string::npos))
    page.refuse_content("a page of an earlier comparison");
}

int run_compare(const CompareArguments& arguments, std::ostream& out) {
  ranks::check_alone("strata compare");
  const text::TableFormat format = text::parse_table_format(arguments.format);
  std::vector<ComparedRun> runs = runs_of(arguments);
  report::ReportFile page("--html", arguments.html);
  check_page(page);
  compare::Provenance provenance = provenance_of(arguments.words);
  compare::Comparison comparison = measure(runs, arguments.measure);
  comparison.provenance = std::move(provenance);
  if (page.is_open()) {
    std::ostringstream text;
    compare::print_page(comparison, text);
    page.clear();
    page.write(text.str());
  }
  if (format == text::TableFormat::Json) {
    out << compare::to_json(comparison).dump(2) << "\n";
    return 0;
  }
  text::print(compare::comparison_table(comparison, format), format, out);
  if (format == text::TableFormat::Text) out << compare::account_of_times(comparison) << "\n";
  if (format == text::TableFormat::Markdown) {
    out << "\n" << compare::account_of_times(comparison) << "\n\n";
    for (const auto& [name, text] : compare::account_of_runs(comparison)) out << "- " << name << ": `" << text << "`\n";
  }
  return 0;  // even if variants differ
}

void describe(CLI::App& command, CompareArguments& arguments) {
  command
      .add_option("configs", arguments.configs,
                  "Config file: .yaml, .toml or .json; several files are several variants")
      ->required();
  command
      .add_option("--vary", arguments.vary,
                  "Values of a config key to compare; the first is the baseline; repeatable: all combinations")
      ->type_name("KEY=A,B")
      ->allow_extra_args(false);
  command
      .add_option("--variant", arguments.variants,
                  "Settings of one variant; the first --variant is the baseline; repeatable")
      ->type_name("'KEY=A KEY=B'")
      ->allow_extra_args(false);
  add_set(command, arguments.settings, "Override one config value for all variants; repeatable");
  add_nproc(command, arguments.measure.nproc, arguments.measure.oversubscribe);
  command.add_flag("--thorough", arguments.measure.thorough,
                   "Measure enough for a verdict on speed: 8 rounds, some minutes (default: a first look with a few "
                   "steps per variant, well under a minute for steps of up to a second)");
  command
      .add_option("--rounds", arguments.measure.rounds,
                  "Rounds of measurement, each with two timed runs per variant; 4 or more for a verdict on speed")
      ->check(CLI::Range(1, 1000));
  command
      .add_option("--steps", arguments.measure.steps,
                  "Timed steps per run (default: 20 to 60 depending on the step time; 3 to 60 in a first look)")
      ->check(CLI::Range(1, 1000000));
  command
      .add_option("--warmup-steps", arguments.measure.warmup_steps,
                  "Untimed steps at the start of each run (default: 3, or 1 in a first look)")
      ->check(CLI::Range(0, 1000000));
  command
      .add_option("--tolerance", arguments.measure.tolerance,
                  "Relative difference up to which losses, norms and gradients count as equal (default: the largest "
                  "that the precision plugins declare, or 1e-5)")
      ->check(CLI::NonNegativeNumber);
  add_format(command, arguments.format);
  command.add_option("--html", arguments.html,
                     "Also write an HTML page with the table, loss curves and bar charts to this file");
  command.add_flag("--apart", arguments.measure.apart,
                   "Run the variants one after the other (default: step by step in turn, if they fit in memory, so "
                   "that a change in the machine's speed affects all alike)");
  command.add_flag("--quiet", arguments.measure.quiet, "Print no progress");
  command.footer(
      "Prints for each variant: step time and its ratio to the baseline, tokens/s, memory, bytes sent, the first step "
      "where losses, gradient norms or a parameter's gradient differ, and whether the plugins declare equal results. A "
      "first look is meant for numbers, memory and large differences in speed. --thorough adds a verdict on speed with "
      "a 99 % interval, from a signed-rank test at the 1 % level on the paired times of each round. With --steps 100 "
      "or more, it also reports memory that grows from step to step.\n"
      "  strata compare configs/quickstart.yaml --nproc 2 --vary partitioner.plugin=ddp,zero3 --thorough\n"
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
  arguments.words.assign(argv + 1, argv + argc);
  describe(app, arguments);
  CommandLine line{app, {argv + 1, argv + argc}};
  line.action = [&] { return run_compare(arguments, std::cout); };
  leave(carry_out(line));
}
