// strata_conformance: what `strata plugins check` runs. Reads the command line, finds the plugins, runs their cases.
#include <strata/error.hpp>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <set>
#include <thread>

#include "conformance/drawn/replay.hpp"
#include "conformance/runner/report.hpp"
#include "plugins/engine_plugins.hpp"
#include "plugins/machine_error.hpp"
#include "text/nearest.hpp"
#include "text/standard_streams.hpp"
#include "text/terminal_output.hpp"

namespace {

using namespace strata;
using namespace strata::conformance;
namespace fs = std::filesystem;

struct Arguments {
  std::vector<std::string> plugins;
  std::string plugin_path;
  std::string format = "text";
  bool all = false;
  bool list = false;
  int deadline = 0;
  CheckSettings settings;
};

void describe(CLI::App& app, Arguments& arguments) {
  app.add_option("plugins", arguments.plugins, "Plugins to check: KIND/NAME, or paths of libraries")
      ->type_name("PLUGIN");
  app.add_flag("--all", arguments.all, "Check every plugin on the search path that this machine can load");
  app.add_option("--seed", arguments.settings.seed, "Random seed of sizes and values (default: 1)");
  app.add_option("--only", arguments.settings.only, "Run only this case, or all cases of this kind; repeatable")
      ->type_name("CASE");
  app.add_option("--jobs", arguments.settings.jobs,
                 "Number of cases to run in parallel (default: number of processors)")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--list", arguments.list, "List the cases without running them");
  app.add_option("--format", arguments.format, "Output format")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "junit", "json"}));
  app.add_option("--seconds", arguments.settings.search.seconds,
                 "Search time in each case that draws random runs (default: a few hundred runs, about 10 s)")
      ->check(CLI::Range(1, 86400));
  app.add_option(
         "--seeds", arguments.settings.search.seeds,
         "Run only the cases that draw random runs, each with the first run of this number of seeds, from --seed on")
      ->check(CLI::Range(1, 1'000'000))
      ->excludes("--seconds");
  app.add_option("--replay", arguments.settings.search.replay,
                 "Random run printed by a failed case; needs --only with that case")
      ->type_name("RUN");
  app.add_flag("--in-process", arguments.settings.search.in_process,
               "Run the cases in this process, for a debugger; no timeouts");
  app.add_option("--deadline", arguments.deadline, "Timeout per case in seconds, in place of the case's own")
      ->check(CLI::Range(1, 86400));
  app.add_option("--plugin-path", arguments.plugin_path, "Folders to search for plugins first, separated by colons");
  app.footer(
      "Exit status: 0 if every case passed or was skipped, 1 if one failed, 2 for wrong input.\n"
      "  strata plugins check build/libmine.so\n"
      "  strata plugins check partitioner/zero3 --only partitioner.drawn --seconds 600\n"
      "  strata plugins check --list");
}

// "partitioner/mine", which names a plugin and no file: file names of libraries have a dot.
bool is_name(const std::string& text) {
  const std::size_t slash = text.find('/');
  return slash != std::string::npos && plugin_kind_from_string(text.substr(0, slash)) &&
         plugins::is_plugin_name(text.substr(slash + 1));
}

std::vector<std::string> files_of(const Arguments& arguments) {
  std::vector<std::string> files;
  const auto registry = plugins::open_registry(arguments.plugin_path);
  if (arguments.all) {
    for (const plugins::FoundPlugin* plugin : registry->list())
      if (plugin->shadowed_by.empty()) files.push_back(plugin->file);
    if (files.empty()) throw UserError("--all: no plugin found; give folders with STRATA_PLUGIN_PATH or --plugin-path");
  }
  for (const std::string& plugin : arguments.plugins) {
    if (is_name(plugin)) {
      const std::size_t slash = plugin.find('/');
      files.push_back(registry->find(*plugin_kind_from_string(plugin.substr(0, slash)), plugin.substr(slash + 1)).file);
      continue;
    }
    std::error_code error;
    const fs::path file = fs::canonical(plugin, error);
    if (error) throw UserError("plugin {}: {}; give the path of a library, or KIND/NAME", plugin, error.message());
    files.push_back(file.string());
  }
  if (files.empty()) throw UserError("no plugin given; give the path of a library, KIND/NAME, or --all");
  return files;
}

// By name; a general case stands once.
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  std::set<std::string_view> known;
  for (std::size_t kind = 0; kind < plugin_kind_names.size(); ++kind)
    for (Case& one : cases_of(static_cast<PluginKind>(kind)))
      if (known.insert(one.name).second) cases.push_back(std::move(one));
  return cases;
}

void check_names(const CheckSettings& settings) {
  const std::vector<std::string>& only = settings.only;
  const std::vector<Case> cases = all_cases();
  if (!settings.search.replay.empty()) {
    choices_of(settings.search.replay);
    const bool one_draws = only.size() == 1 && std::any_of(cases.begin(), cases.end(), [&](const Case& one) {
                             return one.name == only.front() && one.draws;
                           });
    if (!one_draws) throw UserError("--replay needs --only with the one case that printed it, and that draws runs");
  }
  for (const std::string& name : only) {
    if (std::any_of(cases.begin(), cases.end(), [&](const Case& one) { return chosen({name}, one.name); })) continue;
    std::vector<std::string> names;
    for (const Case& one : cases) names.emplace_back(one.name);
    throw UserError("--only {}: unknown case; the nearest is {}; --list prints all", name, text::nearest(name, names));
  }
}

int list_cases(const Arguments& arguments) {
  std::vector<Case> cases = all_cases();
  if (!arguments.plugins.empty() || arguments.all) {
    std::set<std::string_view> wanted;
    for (const std::string& file : files_of(arguments))
      for (const Case& one : cases_of(Subject(file, arguments.settings.seed).manifest().kind)) wanted.insert(one.name);
    std::erase_if(cases, [&](const Case& one) { return !wanted.contains(one.name); });
  }
  for (const Case& one : cases)
    if (chosen(arguments.settings.only, one.name)) std::cout << one.name << ": " << one.sentence << "\n";
  return 0;
}

int check(const Arguments& arguments) {
  const std::vector<std::string> files = files_of(arguments);
  const std::unique_ptr<Report> report = make_report(arguments.format, arguments.settings.seed, std::cout);
  const auto begin = std::chrono::steady_clock::now();
  for (const std::string& file : files) {
    report->begin(file);
    report->end(check_plugin(file, arguments.settings, [&](const CaseResult& result) { report->add(result); }));
  }
  int cases = 0;
  for (const PluginResult& plugin : report->results()) cases += static_cast<int>(plugin.cases.size());
  if (cases == 0)
    throw UserError("--only matches no case of these plugins' kinds; --list PLUGIN prints the available cases");
  report->finish(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  return report->count(is_failure) > 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char* argv[]) {
  text::open_standard_streams();
  text::print_only_what_is_printable();
  CLI::App app("Run the conformance kit on plugins: check that they fulfil the contract of their kind",
               "strata plugins check");
  Arguments arguments;
  arguments.settings.jobs = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  describe(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (arguments.deadline > 0) arguments.settings.deadline = std::chrono::seconds(arguments.deadline);
  arguments.settings.skip_what_cannot_load = arguments.all;
  try {
    return plugins::for_program([&] {
      check_names(arguments.settings);
      return arguments.list ? list_cases(arguments) : check(arguments);
    });
  } catch (const Error& error) {
    std::cerr << "strata plugins check: " << error.what() << std::endl;
    return error.exit_status();
  }
}
