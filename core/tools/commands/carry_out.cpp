#include "tools/commands/carry_out.hpp"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <strata/error.hpp>

#include <iostream>
#include <optional>

#include "plugin_host/plugin_call.hpp"
#include "text/nearest.hpp"
#include "tools/commands/help_format.hpp"
#include "tools/commands/sudden_end.hpp"

namespace strata::cli {

namespace {

void set_up_log(const std::string& level) {
  const auto logger = spdlog::stderr_color_mt("strata");
  logger->set_pattern("%^%l%$: %v");
  logger->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(logger);
}

// The misspelt command, as in `strata trian`; empty when the command line has another error.
std::string unknown_command(const CLI::App& app) {
  const CLI::App* last = &app;
  while (!last->get_subcommands().empty()) last = last->get_subcommands().front();
  std::vector<std::string> known;
  for (const CLI::App* const command : last->get_subcommands([](const CLI::App*) { return true; }))
    known.push_back(command->get_name());
  if (known.empty()) return "";
  for (const std::string& word : last->remaining())
    if (!word.starts_with('-')) {
      const std::string name = app.get_name() + (last == &app ? "" : " " + last->get_name());
      return name + " has no command '" + word + "': " + config::suggestion(word, known);
    }
  return "";
}

}  // namespace

int carry_out(CommandLine& line) {
  CLI::App& app = line.app;
  lay_out_help(app);
  std::vector<std::string> words(line.words.rbegin(), line.words.rend());
  if (words.size() > 1 && words.back() == "--log-level" && app.get_option_no_throw("--log-level") == nullptr) {
    words.pop_back();
    line.log_level = words.back();
    words.pop_back();
  }
  try {
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    if (const std::string unknown = unknown_command(app); !unknown.empty()) {
      std::cerr << "strata: " << unknown << std::endl;
      return 2;
    }
    return app.exit(error) == 0 ? 0 : 2;
  }
  set_up_log(line.log_level);
  name_sudden_end();
  try {
    return line.action();
  } catch (const Error& error) {
    std::cerr << "strata: " << error.what() << std::endl;
    return error.exit_status();
  } catch (const std::exception& error) {
    if (const std::optional<std::string> memory = plugin_host::out_of_memory(error)) {
      std::cerr << "strata: " << *memory << std::endl;
      return EnvironmentError(*memory).exit_status();
    }
    const std::string text = error.what();  // libtorch appends a stack trace after the first line
    std::cerr << "strata: internal error: " << text.substr(0, text.find('\n')) << std::endl;
    return 70;
  }
}

}  // namespace strata::cli
