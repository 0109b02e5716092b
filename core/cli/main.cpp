// The `strata` command: reads the command line, calls the command, and turns errors into one line and an exit status.
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <strata/error.hpp>

#include <iostream>

#include "cli/command_line/command_line.hpp"
#include "cli/leave.hpp"

namespace {

using namespace strata;
using namespace strata::cli;

void set_up_log(const std::string& level) {
  const auto logger = spdlog::stderr_color_mt("strata");
  logger->set_pattern("%^%l%$: %v");
  logger->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(logger);
}

int run(int argc, char* argv[]) {
  CLI::App app("Strata trains large transformer models; every strategy is a plugin that the config names.", "strata");
  app.require_subcommand(1);
  app.set_version_flag("--version", STRATA_VERSION);
  std::string log_level = "info";
  Action action;
  app.add_option("--log-level", log_level, "debug, info, warn, err or off")
      ->check(CLI::IsMember({"debug", "info", "warn", "err", "off"}));
  add_training_commands(app, action, {argv + 1, argv + argc});
  add_plan_command(app, action);
  add_compare_command(app, action);
  add_bench_command(app, action, {argv + 1, argv + argc});
  add_plugins_command(app, action);
  add_schedule_command(app, action);
  add_config_command(app, action);
  add_data_command(app, action);
  add_checkpoint_command(app, action);
  add_doctor_command(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int status = app.exit(error);
    return status == 0 ? 0 : 2;
  }
  set_up_log(log_level);
  try {
    return action();
  } catch (const Error& error) {
    std::cerr << "strata: " << error.what() << std::endl;
    return error.exit_status();
  } catch (const std::exception& error) {
    const std::string text = error.what();  // libtorch's errors carry a stack trace behind their first line
    std::cerr << "strata: internal error: " << text.substr(0, text.find('\n')) << std::endl;
    return 70;
  }
}

}  // namespace

int main(int argc, char* argv[]) { leave(run(argc, argv)); }
