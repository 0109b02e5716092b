// bench.
#include "tools/command_line/command_line.hpp"

#include <iostream>

#include "tools/commands/bench_command.hpp"
#include "tools/compare/paired_ratio.hpp"

namespace strata::cli {

void add_bench_command(CLI::App& app, Action& action, std::vector<std::string> command_line) {
  CLI::App& command = *app.add_subcommand("bench", "Measure one plugin's speed against the fastest possible");
  static BenchArguments bench;
  bench.command_line = std::move(command_line);
  command.add_option("plugin", bench.plugin, "KIND/NAME, or the absolute path of a plugin library")->required();
  command.add_option("--set", bench.settings, "Set an option of the plugin; repeatable")
      ->type_name("OPTION=VALUE")
      ->allow_extra_args(false);
  command
      .add_option(
          "--size", bench.sizes,
          "Size of the work; repeatable. Bytes, e.g. 64MiB; for a precision: rows and columns of a weight; for a "
          "scheduler:\nmicro-batches; for a model and for data: tokens")
      ->allow_extra_args(false);
  command.add_option("--rounds", bench.rounds, "Rounds; each times the plugin and its floor once")
      ->capture_default_str()

      ->check(CLI::Range(report::smallest_pairs, 10000));
  command.add_option("--threads", bench.threads, "Threads per process")->check(CLI::Range(1, 4096));
  command.add_option("--nproc", bench.nproc, "Number of ranks to start, for a communicator or a partitioner")
      ->capture_default_str()

      ->check(CLI::Range(2, 4096));
  add_oversubscribe(command, bench.oversubscribe);
  command
      .add_option("--seconds", bench.seconds, "Approximate length of one timing, in seconds; short work is repeated")
      ->capture_default_str()

      ->check(CLI::Range(1e-6, 60.0));
  command.add_option(
      "--communicator", bench.communicator,
      "Communicator plugin, for a partitioner (default: the first usable one of automatic.communicator)");
  command.add_option("--plugin-path", bench.plugin_path, "Folders to search for plugins first, separated by colons");
  command.add_option("--format", bench.format, "Output format")
      ->check(CLI::IsMember(table_formats))
      ->capture_default_str();
  command.add_option("--progress", bench.progress)->check(CLI::IsMember({"auto", "lines", "none"}))->group("");
  command.footer(
      "The floor is the least time that the same work can take; the fastest of several ways counts in each round. "
      "Floor "
      "by kind:\n"
      "  optimizer      one pass over the tensors it reads and writes\n"
      "  device         one pass over the same memory, or a copy\n"
      "  offload        a memory copy, or plain file I/O\n"
      "  communicator   a copy of the bytes a rank must send\n"
      "  partitioner    the same collectives without the partitioner\n"
      "  precision      at::linear\n"
      "  model          matmuls with the FLOP of its weights\n"
      "  scheduler      the pipeline bubble that no schedule avoids\n"
      "  data           a copy of tokens that lie in memory\n"
      "Examples:\n"
      "  strata bench optimizer/adamw --size 256MiB --threads 8\n"
      "  strata bench partitioner/zero3 --nproc 4 --set reduce_bucket_size=8000000 --format markdown\n"
      "  strata bench $PWD/build/libmine.so");
  command.callback([&action] { action = [] { return bench_command(bench, std::cout); }; });
}

}  // namespace strata::cli
