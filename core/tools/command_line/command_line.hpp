// What may stand on each command's line. Each
// add_..._command adds one command to `app`, which sets `action` when it is the one that was given.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace strata::cli {

// What the chosen command does; set while the command line is read, called after it. Gives the exit status.
using Action = std::function<int()>;

// --format of commands that print a table.
inline const std::vector<std::string> table_formats{"table", "markdown", "csv", "json"};

// An option that is another spelling of a setting: appends KEY=VALUE to `settings`. CLI11 replaces a vector that is an
// option's own, so these stand behind --set.
void add_setting(CLI::App& command, const std::string& option, const std::string& key,
                 std::vector<std::string>& settings, const std::string& text);
// --oversubscribe, beside --nproc of a command that starts ranks.
void add_oversubscribe(CLI::App& command, bool& oversubscribe);
// The keys whose refusal is waived; each use of --allow adds to them.
void add_deepspeed_allow(CLI::App& command, std::vector<std::string>& settings);
// --model, --data and --dtype.
void add_model_and_data(CLI::App& command, std::vector<std::string>& settings);

// train, eval and launch. `command_line`: this process's arguments without its name.
void add_training_commands(CLI::App& app, Action& action, std::vector<std::string> command_line);
void add_plan_command(CLI::App& app, Action& action);
void add_compare_command(CLI::App& app, Action& action);
void add_bench_command(CLI::App& app, Action& action, std::vector<std::string> command_line);
void add_plugins_command(CLI::App& app, Action& action);
void add_schedule_command(CLI::App& app, Action& action);
void add_config_command(CLI::App& app, Action& action);
void add_data_command(CLI::App& app, Action& action);
void add_checkpoint_command(CLI::App& app, Action& action);
void add_doctor_command(CLI::App& app, Action& action);

}  // namespace strata::cli
