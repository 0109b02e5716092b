#include "tools/commands/carry_out.hpp"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <strata/error.hpp>

#include <iostream>
#include <optional>

#include "plugin_host/plugin_call.hpp"

namespace strata::cli {

namespace {

void set_up_log(const std::string& level) {
  const auto logger = spdlog::stderr_color_mt("strata");
  logger->set_pattern("%^%l%$: %v");
  logger->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(logger);
}

}  // namespace

int carry_out(const std::string& log_level, const std::function<int()>& command) {
  set_up_log(log_level);
  try {
    return command();
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
