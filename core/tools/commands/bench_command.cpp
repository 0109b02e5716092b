#include "tools/commands/bench_command.hpp"

#include <ATen/Parallel.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <iostream>
#include <optional>

#include "plugin_host/engine_plugins.hpp"
#include "text/nearest.hpp"
#include "tools/bench/bench.hpp"
#include "tools/bench/bench_report.hpp"
#include "tools/bench/plugin_under_test.hpp"
#include "tools/commands/option_values.hpp"
#include "tools/launch/run_ranks.hpp"

namespace strata::cli {

namespace {

struct Chosen {
  PluginKind kind;
  std::string name_or_path;
};

Chosen choose(plugin_host::PluginRegistry& registry, const std::string& which) {
  if (which.starts_with('/')) return {registry.find_file(which).manifest.kind, which};
  const std::size_t slash = which.find('/');
  if (slash == std::string::npos || which.ends_with(".so"))
    throw UserError("bench '" + which +
                    "': give KIND/NAME, as in `strata plugins list`, or the absolute path of a library");
  const std::string kind = which.substr(0, slash);
  const std::optional<PluginKind> known = plugin_kind_from_string(kind);
  if (!known)
    throw UserError("bench '" + which + "': '" + kind + "' is not a kind of plugin: " +
                    config::suggestion(kind, {plugin_kind_names.begin(), plugin_kind_names.end()}));
  return {*known, which.substr(slash + 1)};
}

// Rewrites one line of a terminal, or writes lines.
std::function<void(const std::string&)> progress_of(const std::string& progress) {
  if (progress == "lines") return [](const std::string& text) { std::cerr << "measuring " << text << std::endl; };
  if (progress == "auto" && isatty(STDERR_FILENO) == 1)
    return [](const std::string& text) { std::cerr << "\r\033[Kmeasuring " << text << std::flush; };
  return [](const std::string&) {};
}

int start_ranks(const BenchArguments& arguments) {
  launch::RankProgram program;
  program.ranks = arguments.nproc;
  program.oversubscribe = arguments.oversubscribe;
  program.arguments = arguments.command_line;
  if (arguments.progress == "auto") {
    program.arguments.emplace_back("--progress");
    program.arguments.emplace_back(isatty(STDERR_FILENO) == 1 ? "lines" : "none");
  }
  return launch::run_ranks(program);
}

void print_report(const bench::BenchReport& report, const std::string& format, std::ostream& out) {
  const report::TableFormat chosen = report::parse_table_format(format);
  if (chosen == report::TableFormat::Json) {
    out << bench::to_json(report).dump(2) << "\n";
    return;
  }
  report::print(bench::bench_table(report), chosen, out);
  if (chosen == report::TableFormat::Text)
    out << report.plugin << ", " << report.ranks
        << (report.ranks == 1 ? " process, " : " ranks, the slowest one's times, ") << report.threads
        << (report.threads == 1 ? " thread" : " threads") << ", " << report.rounds
        << " rounds, each of the plugin and its floor; ratio: time / floor time with its 99 % interval\n";
}

}  // namespace

int bench_command(const BenchArguments& arguments, std::ostream& out) {
  report::parse_table_format(arguments.format);
  const std::shared_ptr<plugin_host::PluginRegistry> registry = plugin_host::open_registry(arguments.plugin_path);
  const Chosen chosen = choose(*registry, arguments.plugin);
  bench::Settings settings;
  settings.options = bench::options_of(arguments.settings);
  for (const std::string& size : arguments.sizes) settings.sizes.push_back(size_value("--size", size));
  settings.rounds = arguments.rounds;
  settings.seconds = arguments.seconds;
  settings.communicator = arguments.communicator;
  if (bench::needs_ranks(chosen.kind)) {
    settings.place = launch::read_environment();
    if (settings.place.launcher == launch::Launcher::None) {
      bench::check_usable(*registry, chosen.kind, chosen.name_or_path);
      return start_ranks(arguments);
    }
  }
  if (arguments.threads > 0) at::set_num_threads(arguments.threads);
  const bool speaks = settings.place.rank == 0;
  if (speaks) settings.say = progress_of(arguments.progress);
  bench::BenchReport report;
  report.plugin = full_name(registry->find(chosen.kind, chosen.name_or_path).manifest);
  report.ranks = settings.place.size;
  report.threads = at::get_num_threads();
  report.rounds = settings.rounds;
  report.rows = bench::run_bench(*registry, chosen.kind, chosen.name_or_path, settings);
  if (!speaks) return 0;
  if (arguments.progress == "auto" && isatty(STDERR_FILENO) == 1) std::cerr << "\r\033[K" << std::flush;
  print_report(report, arguments.format, out);
  return 0;
}

}  // namespace strata::cli
