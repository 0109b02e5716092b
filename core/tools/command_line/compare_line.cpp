// compare.
#include "tools/command_line/command_line.hpp"

#include <iostream>

#include "tools/commands/compare_command.hpp"

namespace strata::cli {

void add_compare_command(CLI::App& app, Action& action) {
  CLI::App& command = *app.add_subcommand("compare", "Compare training runs: speed, memory, traffic and numbers");
  static CompareArguments compare;
  command
      .add_option("configs", compare.configs, "Config file: .yaml, .toml or .json; several files are several variants")
      ->required();
  command
      .add_option("--vary", compare.vary,
                  "Compare these values of a config key; the first is the baseline; repeatable: all combinations")
      ->type_name("KEY=A,B")
      ->allow_extra_args(false);
  command
      .add_option("--variant", compare.variants,
                  "The settings of one variant; the first --variant is the baseline; repeatable")
      ->type_name("'KEY=A KEY=B'")
      ->allow_extra_args(false);
  command.add_option("--set", compare.settings, "Override one config value for all variants; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command.add_option("--nproc", compare.nproc, "Number of ranks (processes) to start on this machine")
      ->check(CLI::Range(1, 4096));
  add_oversubscribe(command, compare.oversubscribe);
  command
      .add_option("--rounds", compare.rounds,
                  "Rounds of measurement, two timed runs of each variant in each; 4 or more for a verdict on speed")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command.add_option("--steps", compare.steps, "Timed steps per run (default: as many as take a second, 20 to 60)")
      ->check(CLI::Range(1, 1000000));
  command.add_option("--warmup-steps", compare.warmup_steps, "Untimed steps at the start of each run")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000000));
  command
      .add_option(
          "--tolerance", compare.tolerance,
          "Relative difference up to which losses, norms and gradients count as equal (default: the largest that the "
          "precision\nplugins declare, or 1e-5)")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--format", compare.format, "Output format")
      ->check(CLI::IsMember(table_formats))
      ->capture_default_str();
  command.add_option("--html", compare.html,
                     "Also write an HTML page with the table, loss curves and bar charts to this file");
  command.add_flag("--apart", compare.apart,
                   "Run the variants one after the other. By default they run together and take turns step by step, if "
                   "they fit in\n"
                   "memory, so that a change in the machine's speed affects all alike");
  command.add_flag("--quiet", compare.quiet, "Print no progress");
  command.footer(
      "Prints for every variant: step time and its ratio to the baseline with a 99 % interval, tokens/s, memory, bytes "
      "sent, and the\n"
      "first step where its losses, gradient norms or a parameter's gradient differ. Times are compared pairwise "
      "within "
      "a round by a\n"
      "signed-rank test at the 1 % level.\n"
      "  strata compare configs/quickstart.yaml --nproc 2 --vary partitioner.plugin=ddp,zero3\n"
      "  strata compare configs/report/stages.yaml --nproc 2 --set data.path=train.bin --html stages.html\n"
      "  strata compare run.yaml --variant 'parallel.pipeline=1' --variant 'parallel.pipeline=2 "
      "scheduler.plugin=1f1b'\n"
      "  strata compare run.yaml --vary partitioner.plugin=zero3,$PWD/build/libmine.so --format markdown");
  command.callback([&action] { action = [] { return compare_command(compare, std::cout); }; });
}

}  // namespace strata::cli
