// compare.
#include "tools/command_line/command_line.hpp"

#include <iostream>

#include "tools/commands/compare_command.hpp"

namespace strata::cli {

void add_compare_command(CLI::App& app, Action& action) {
  CLI::App& command = *app.add_subcommand("compare", "Train with one choice varied, in turns, and print what differs");
  static CompareArguments compare;
  command
      .add_option("configs", compare.configs, "The run's config: .yaml, .toml or .json; each of several is a variant")
      ->required();
  command
      .add_option("--vary", compare.vary,
                  "KEY=A,B: a key and its values; the first is what the others are compared with; may be repeated")
      ->allow_extra_args(false);
  command
      .add_option("--variant", compare.variants,
                  "\"KEY=A KEY=B\": the settings of one variant, the first is the baseline's; repeat it")
      ->allow_extra_args(false);
  command.add_option("--set", compare.settings, "Change one value for all; may be repeated")->allow_extra_args(false);
  command.add_option("--nproc", compare.nproc, "Ranks to start on this machine")->check(CLI::Range(1, 4096));
  add_oversubscribe(command, compare.oversubscribe);
  command
      .add_option("--rounds", compare.rounds,
                  "Rounds, of two timed runs of each; below 4 nothing is said of which is slower")
      ->check(CLI::Range(1, 1000));
  command
      .add_option("--steps", compare.steps, "Timed steps of a run; when not given, as many as take a second, 20 to 60")
      ->check(CLI::Range(1, 1000000));
  command.add_option("--warmup-steps", compare.warmup_steps, "Steps before them")->check(CLI::Range(0, 1000000));
  command
      .add_option(
          "--tolerance", compare.tolerance,
          "Numbers closer than this, relatively, count as equal; when not given,\nwhat the precisions declare, or 1e-5")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--format", compare.format, "table, markdown, csv or json")->check(CLI::IsMember(table_formats));
  command.add_option("--html", compare.html, "Write a page with the table, the losses' curves and bars to this file");
  command.add_flag("--apart", compare.apart,
                   "Time the runs of a round one after the other. Else they take turns, step by step, where the memory "
                   "holds them all: "
                   "then a\nmachine whose speed changes from second to second is the same for all");
  command.add_flag("--quiet", compare.quiet, "No progress");
  command.footer(
      "Times are compared by pairs of runs of one round, with a signed-rank test at 1 %; a machine that grows slower "
      "meets all alike.\n"
      "  strata compare configs/quickstart.yaml --nproc 2 --vary partitioner.plugin=ddp,zero3\n"
      "  strata compare configs/report/stages.yaml --nproc 2 --set data.path=train.bin --html stages.html\n"
      "  strata compare run.yaml --variant 'parallel.pipeline=1' --variant 'parallel.pipeline=2 "
      "scheduler.plugin=1f1b'\n"
      "  strata compare run.yaml --vary partitioner.plugin=zero3,$PWD/build/libmine.so --format markdown");
  command.callback([&action] { action = [] { return compare_command(compare, std::cout); }; });
}

}  // namespace strata::cli
