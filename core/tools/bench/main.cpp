// strata_bench: what `strata bench` runs. Reads the command line, starts ranks where the kind is measured between
// ranks, prints the rows.
#include <ATen/Parallel.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <CLI/CLI.hpp>
#include <iostream>
#include <optional>

#include "plugins/engine_plugins.hpp"
#include "text/nearest.hpp"
#include "text/terminal_output.hpp"
#include "tools/bench/bench.hpp"
#include "tools/bench/bench_report.hpp"
#include "tools/chosen/option_values.hpp"
#include "tools/command/carry_out.hpp"
#include "tools/command/command.hpp"
#include "tools/command/leave.hpp"
#include "tools/compare/paired_ratio.hpp"
#include "tools/ranks/nproc.hpp"
#include "tools/ranks/run_ranks.hpp"

namespace {

using namespace strata;

struct Arguments {
  std::string plugin;                // KIND/NAME, or the absolute path of a library
  std::vector<std::string> options;  // OPTION=VALUE
  std::vector<std::string> sizes;    // as in 64MiB, or a plain number
  int threads = 0;                   // 0: libtorch's default, or the launcher's
  int nproc = 2;                     // ranks to start, if the kind is measured between ranks
  const CLI::Option* nproc_option = nullptr;
  const CLI::Option* communicator_option = nullptr;
  bool oversubscribe = false;
  std::string plugin_path;
  std::string format = "table";
  std::string progress = "auto";  // auto: on a terminal; lines: for ranks whose launcher writes to a terminal; none
  bench::Settings settings;       // the others
};

void describe(CLI::App& app, Arguments& arguments) {
  app.add_option("plugin", arguments.plugin, "KIND/NAME, or the absolute path of a plugin library")->required();
  app.add_option("--set", arguments.options, "Set an option of the plugin; repeatable")
      ->type_name("OPTION=VALUE")
      ->allow_extra_args(false);
  app.add_option("--size", arguments.sizes,
                 "Size of the work; repeatable. Bytes, e.g. 64MiB; for a precision: rows and columns of a weight; for "
                 "a scheduler: micro-batches; for a model or data: tokens")
      ->allow_extra_args(false);
  app.add_option("--rounds", arguments.settings.rounds, "Number of rounds; each times the plugin and its floor once")
      ->capture_default_str()
      ->check(CLI::Range(compare::smallest_pairs, 10000));
  app.add_option("--threads", arguments.threads, "Threads per process")->check(CLI::Range(1, 4096));
  arguments.nproc_option =
      app.add_option("--nproc", arguments.nproc, "Number of ranks to start for a communicator or a partitioner")
          ->capture_default_str()
          ->check(CLI::Range(2, 4096));
  cli::add_oversubscribe(app, arguments.oversubscribe);
  app.add_option("--seconds", arguments.settings.seconds,
                 "Approximate length of one timing, in seconds; short work is repeated")
      ->capture_default_str()
      ->check(CLI::Range(1e-6, 60.0));
  arguments.communicator_option =
      app.add_option("--communicator", arguments.settings.communicator,
                     "Communicator plugin for a partitioner (default: the first usable one of automatic.communicator)");
  app.add_option("--plugin-path", arguments.plugin_path, "Folders to search for plugins first, separated by colons");
  app.add_option("--format", arguments.format, "Output format")
      ->check(CLI::IsMember(cli::table_formats))
      ->capture_default_str();
  app.add_option("--progress", arguments.progress)->check(CLI::IsMember({"auto", "lines", "none"}))->group("");
  app.footer(
      "The floor is a lower bound on the time of the same work: the fastest of several simple implementations. Floor "
      "by kind:\n"
      "  optimizer      one pass over the tensors it reads and writes\n"
      "  device         one pass over the same memory, or a copy\n"
      "  offload        a memory copy, or direct file I/O by several threads\n"
      "  communicator   a copy of the bytes a rank must send\n"
      "  partitioner    the same collectives without the partitioner\n"
      "  precision      at::linear\n"
      "  model          matmuls with the FLOP of its weights\n"
      "  scheduler      the pipeline bubble that no schedule avoids\n"
      "  data           a copy of tokens in memory\n"
      "Examples:\n"
      "  strata bench optimizer/adamw --size 256MiB --threads 8\n"
      "  strata bench partitioner/zero3 --nproc 4 --set reduce_bucket_size=8000000 --format markdown\n"
      "  strata bench $PWD/build/libmine.so");
}

struct Chosen {
  PluginKind kind;
  std::string name_or_path;
};

Chosen choose(plugins::PluginRegistry& registry, const std::string& which) {
  if (which.starts_with('/')) return {registry.find_file(which).manifest.kind, which};
  const std::size_t slash = which.find('/');
  if (slash == std::string::npos || which.ends_with(".so"))
    throw UserError("bench '{}': give KIND/NAME, as in `strata plugins list`, or the absolute path of a library",
                    which);
  const std::string kind = which.substr(0, slash);
  const std::optional<PluginKind> known = plugin_kind_from_string(kind);
  if (!known)
    throw UserError("bench '{}': '{}' is not a kind of plugin: {}", which, kind,
                    text::suggestion(kind, {plugin_kind_names.begin(), plugin_kind_names.end()}));
  return {*known, which.substr(slash + 1)};
}

bool on_terminal() {
  return isatty(STDERR_FILENO) == 1;
}

// Rewrites one line of a terminal, or writes lines.
std::function<void(const std::string&)> progress_of(const std::string& progress) {
  if (progress == "lines") return [](const std::string& text) { std::cerr << "measuring " << text << std::endl; };
  if (progress == "auto" && on_terminal())
    return [](const std::string& text) { std::cerr << text::clear_line << "measuring " << text << std::flush; };
  return [](const std::string&) {};
}

int start_ranks(const Arguments& arguments, std::vector<std::string> command_line) {
  if (arguments.progress == "auto")
    command_line.insert(command_line.end(), {"--progress", on_terminal() ? "lines" : "none"});
  return ranks::run_ranks(
      {.ranks = arguments.nproc, .arguments = std::move(command_line), .oversubscribe = arguments.oversubscribe});
}

void print_report(const bench::BenchReport& report, const std::string& format) {
  const text::TableFormat chosen = text::parse_table_format(format);
  if (chosen == text::TableFormat::Json) {
    std::cout << bench::to_json(report).dump(2) << "\n";
    return;
  }
  text::print(bench::bench_table(report), chosen, std::cout);
  if (chosen == text::TableFormat::Text)
    std::cout << report.plugin << ", " << report.ranks
              << (report.ranks == 1 ? " process, " : " ranks, the slowest one's times, ") << report.threads
              << (report.threads == 1 ? " thread" : " threads") << ", " << report.rounds
              << " rounds, each of the plugin and its floor; ratio: time / floor time with its 99 % interval\n";
}

// Refuses options that do nothing for this kind of plugin.
void check_ranks_options(const Arguments& arguments, PluginKind kind) {
  const std::string found = std::string(to_string(kind)) + " plugins are measured ";
  if (arguments.nproc_option->count() > 0 && !bench::needs_ranks(kind))
    throw UserError("--nproc: {}in one process; leave it out", found);
  if (arguments.communicator_option->count() > 0 && kind != PluginKind::Partitioner)
    throw UserError("--communicator applies only to partitioners; leave it out");
}

// `command_line`: this process's arguments without the program's name.
int measure(Arguments& arguments, const std::vector<std::string>& command_line) {
  const bench::Registry registry = plugins::open_registry(arguments.plugin_path);
  const Chosen chosen = choose(*registry, arguments.plugin);
  bench::Settings& settings = arguments.settings;
  settings.options = cli::options_of(arguments.options);
  for (const std::string& size : arguments.sizes) settings.sizes.push_back(cli::size_value("--size", size));
  check_ranks_options(arguments, chosen.kind);
  if (bench::needs_ranks(chosen.kind)) {
    settings.place = group::read_environment();
    const bool asked = arguments.nproc_option->count() > 0 || settings.place.launcher == group::Launcher::None;
    if (ranks::starts_ranks(asked ? arguments.nproc : 0, settings.place)) {
      bench::check_usable(registry, chosen.kind, chosen.name_or_path);
      return start_ranks(arguments, command_line);
    }
  }
  if (arguments.threads > 0) at::set_num_threads(arguments.threads);
  const bool speaks = settings.place.rank == 0;
  if (speaks) settings.say = progress_of(arguments.progress);
  bench::BenchReport report{plugins::full_name(registry->find(chosen.kind, chosen.name_or_path).manifest),
                            settings.place.size, at::get_num_threads(), settings.rounds};
  report.rows = bench::run_bench(registry, chosen.kind, chosen.name_or_path, settings);
  if (!speaks) return 0;
  if (arguments.progress == "auto" && on_terminal()) std::cerr << text::clear_line << std::flush;
  print_report(report, arguments.format);
  return 0;
}

}  // namespace

int main(int argc, char* argv[]) {
  CLI::App app("Measure a plugin's speed against a lower bound", "strata bench");
  Arguments arguments;
  describe(app, arguments);
  cli::CommandLine line{app, {argv + 1, argv + argc}};
  line.action = [&] { return measure(arguments, line.words); };
  cli::leave(cli::carry_out(line));
}
