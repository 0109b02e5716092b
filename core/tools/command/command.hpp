// Code shared by all words of `strata`: the command line, and options that several words have. The words are listed in
// tools/launcher/words.hpp.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace strata::cli {

// Carries out the command and returns the exit status.
using Action = std::function<int()>;

// The command line of `strata`, or of a program behind one of its commands.
struct CommandLine {
  CLI::App& app;
  std::vector<std::string> words;  // this process's arguments without the program's name
  Action action = {};              // action of the given command; set by parsing
  std::string log_level = "info";

  void on(CLI::App& command, Action chosen) {
    command.callback([this, chosen = std::move(chosen)] { action = chosen; });
  }
};

// Adds every word of `strata` to its command line.
void add_words(CommandLine& line);

// A program in the folder of `strata`.
struct Program {
  std::string name;
  std::string package;         // package that installs it
  std::string passed_on = "";  // an option of the command above it that is passed on if it was given
};

// Adds a subcommand that such a program carries out with all arguments, including --help. Running it throws
// EnvironmentError with the package to install if the program does not exist.
void add_program(CommandLine& line, CLI::App& parent, const std::string& name, const std::string& text,
                 const Program& program);

inline const std::vector<std::string> table_formats{"table", "markdown", "csv", "json"};

// Adds the config file, --set and --allow for a command that reads one run's config. `example`: example for --set.
CLI::Option* add_config_file(CLI::App& command, const std::string& names, std::string& file,
                             std::vector<std::string>& settings, const std::string& example = "");
void add_set(CLI::App& command, std::vector<std::string>& settings, const std::string& text);
// Adds an option that sets a config key by appending KEY=VALUE to `settings`. Add it after --set, because CLI11
// replaces the vector of --set.
CLI::Option* add_setting(CLI::App& command, const std::string& option, const std::string& key,
                         std::vector<std::string>& settings, const std::string& text);
// Adds --data and --dtype.
void add_data_and_precision(CLI::App& command, std::vector<std::string>& settings);
// Adds --model, --data and --dtype.
void add_model_and_data(CLI::App& command, std::vector<std::string>& settings);
// Adds --nproc and --oversubscribe, for a command that starts ranks.
CLI::Option* add_nproc(CLI::App& command, int& nproc, bool& oversubscribe);
void add_oversubscribe(CLI::App& command, bool& oversubscribe);
void add_format(CLI::App& command, std::string& format, const std::vector<std::string>& formats = table_formats);
void add_plugin_path(CLI::App& command, std::string& plugin_path);

}  // namespace strata::cli
