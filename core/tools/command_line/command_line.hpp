// The commands and their options. Each add_..._command adds one command to `app`; when the user gives that command,
// parsing sets `action`.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace strata::cli {

// Runs the chosen command and returns the exit status. Set while the command line is parsed, called afterwards.
using Action = std::function<int()>;

// --format of commands that print a table.
inline const std::vector<std::string> table_formats{"table", "markdown", "csv", "json"};

// An option that sets a config key: appends KEY=VALUE to `settings`. Add it after --set, because CLI11 replaces the
// vector of --set.
void add_setting(CLI::App& command, const std::string& option, const std::string& key,
                 std::vector<std::string>& settings, const std::string& text);
// --oversubscribe, for a command that starts ranks.
void add_oversubscribe(CLI::App& command, bool& oversubscribe);
// --allow KEY: run although this ds_config key is not supported; repeatable.
void add_deepspeed_allow(CLI::App& command, std::vector<std::string>& settings);
// --model, --data and --dtype.
void add_model_and_data(CLI::App& command, std::vector<std::string>& settings);

// train, eval and launch. `command_line`: this process's arguments without the program's name.
void add_training_commands(CLI::App& app, Action& action, std::vector<std::string> command_line);
void add_plan_command(CLI::App& app, Action& action);
void add_compare_command(CLI::App& app, Action& action);
// A command of plugins' authors that a program of the SDK, beside this one, carries out: it gets all arguments, --help
// too, and `passed_on`, an option of `parent`, if that was given. Without the program the command is an
// EnvironmentError that says what to install.
void add_sdk_command(CLI::App& parent, Action& action, const std::string& name, const std::string& text,
                     const std::string& program, const std::string& passed_on = "");
void add_plugins_command(CLI::App& app, Action& action);
void add_schedule_command(CLI::App& app, Action& action);
void add_config_command(CLI::App& app, Action& action);
void add_data_command(CLI::App& app, Action& action);
void add_checkpoint_command(CLI::App& app, Action& action);
void add_doctor_command(CLI::App& app, Action& action);

}  // namespace strata::cli
