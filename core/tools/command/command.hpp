// A command of `strata` is a source of this folder: it adds its line to the program's and does what the line says. This
// header lists the commands and has the options that several of them share.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace strata::cli {

// Does what the user asked for and returns the exit status.
using Action = std::function<int()>;

// The command line of `strata`, or of a program behind one of its commands.
struct CommandLine {
  CLI::App& app;
  std::vector<std::string> words;  // this process's arguments without the program's name
  Action action = {};              // of the command that the user gave; set by parsing
  std::string log_level = "info";

  void on(CLI::App& command, Action chosen) {
    command.callback([this, chosen = std::move(chosen)] { action = chosen; });
  }
};

// The commands, in the order of `strata --help`.
#define STRATA_COMMANDS                                                                                   \
  add_train, add_eval, add_sample, add_launch, add_plan, add_verify, add_compare, add_bench, add_plugins, \
      add_schedule, add_trace, add_config, add_data, add_checkpoint, add_doctor
using AddCommand = void(CommandLine& line);
AddCommand STRATA_COMMANDS;

// A program of sdk/, beside this one.
struct SdkProgram {
  std::string name;
  std::string package;         // that it is installed with
  std::string passed_on = "";  // an option of the command above that goes on to it if it was given
};

// A command that such a program carries out: it gets all arguments, --help too. Without the program the command is an
// EnvironmentError that says what to install.
void add_sdk_command(CommandLine& line, CLI::App& parent, const std::string& name, const std::string& text,
                     const SdkProgram& program);

inline const std::vector<std::string> table_formats{"table", "markdown", "csv", "json"};

// The config file, --set and --allow of a command that reads one run's config. `example`: of --set.
CLI::Option* add_config_file(CLI::App& command, const std::string& names, std::string& file,
                             std::vector<std::string>& settings, const std::string& example = "");
void add_set(CLI::App& command, std::vector<std::string>& settings, const std::string& text);
// An option that sets a config key: appends KEY=VALUE to `settings`. Add it after --set, because CLI11 replaces the
// vector of --set.
CLI::Option* add_setting(CLI::App& command, const std::string& option, const std::string& key,
                         std::vector<std::string>& settings, const std::string& text);
// --data and --dtype.
void add_data_and_precision(CLI::App& command, std::vector<std::string>& settings);
// --model, --data and --dtype.
void add_model_and_data(CLI::App& command, std::vector<std::string>& settings);
// --nproc and --oversubscribe, for a command that starts ranks.
CLI::Option* add_nproc(CLI::App& command, int& nproc, bool& oversubscribe);
void add_oversubscribe(CLI::App& command, bool& oversubscribe);
void add_format(CLI::App& command, std::string& format, const std::vector<std::string>& formats = table_formats);
void add_plugin_path(CLI::App& command, std::string& plugin_path);

}  // namespace strata::cli
