// bench.
#include "tools/command_line/command_line.hpp"

#include <iostream>

#include "tools/commands/bench_command.hpp"
#include "tools/compare/paired_ratio.hpp"

namespace strata::cli {

void add_bench_command(CLI::App& app, Action& action, std::vector<std::string> command_line) {
  CLI::App& command = *app.add_subcommand("bench", "One plugin's own speed beside its floor, measured in turns");
  static BenchArguments bench;
  bench.command_line = std::move(command_line);
  command.add_option("plugin", bench.plugin, "KIND/NAME, or the absolute path of a library")->required();
  command.add_option("--set", bench.settings, "OPTION=VALUE: an option of the plugin; may be repeated")
      ->allow_extra_args(false);
  command
      .add_option(
          "--size", bench.sizes,
          "How large; may be repeated. Bytes as in 64MiB; for a precision the rows and columns of a weight, for "
          "a\nscheduler micro-batches, for a model and for data tokens")
      ->allow_extra_args(false);
  command.add_option("--rounds", bench.rounds, "Rounds: one time of the plugin and one of its floor in each")
      ->check(CLI::Range(report::smallest_pairs, 10000));
  command.add_option("--threads", bench.threads, "Threads of each process")->check(CLI::Range(1, 4096));
  command.add_option("--nproc", bench.nproc, "Ranks to start, for a communicator or a partitioner")
      ->check(CLI::Range(2, 4096));
  add_oversubscribe(command, bench.oversubscribe);
  command.add_option("--seconds", bench.seconds, "One timing repeats its work for about so long")
      ->check(CLI::Range(1e-6, 60.0));
  command.add_option(
      "--communicator", bench.communicator,
      "What connects a partitioner's ranks; when not given, the first of automatic.communicator that can");
  command.add_option("--plugin-path", bench.plugin_path, "Folders to search first, separated by colons");
  command.add_option("--format", bench.format, "table, markdown, csv or json")->check(CLI::IsMember(table_formats));
  command.add_option("--progress", bench.progress)->check(CLI::IsMember({"auto", "lines", "none"}))->group("");
  command.footer(
      "A floor is what nothing can beat, the fastest of several ways in each round: of an optimizer one pass over the "
      "same "
      "streams,\n"
      "of an offload device a copy or plain file I/O, of a communicator a copy of what a rank must send, of a "
      "partitioner "
      "the\n"
      "collectives it called by themselves, of a precision at::linear, of a model a matmul of its weights' FLOP, of a "
      "scheduler\n"
      "what the last stage must wait, of data a copy of tokens that lie in memory.\n"
      "  strata bench optimizer/adamw --size 256MiB --threads 8\n"
      "  strata bench partitioner/zero3 --nproc 4 --set bucket_size=32MiB --format markdown\n"
      "  strata bench $PWD/build/libmine.so");
  command.callback([&action] { action = [] { return bench_command(bench, std::cout); }; });
}

}  // namespace strata::cli
