#include "tools/command/carry_out.hpp"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <strata/error.hpp>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <utility>

#include "text/printable.hpp"
#include "tools/command/begin.hpp"
#include "tools/command/help_format.hpp"
#include "tools/command/parse_error.hpp"
#include "tools/command/sudden_end.hpp"

namespace strata::cli {

namespace {

// %* in a pattern: the message, printable.
class PrintableMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& target) override {
    const std::string text = text::printable({message.payload.data(), message.payload.size()});
    target.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<PrintableMessage>(); }
};

void set_up_log(const std::string& level) {
  const auto logger = spdlog::stderr_color_mt("strata");
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<PrintableMessage>('*').set_pattern("%^%l%$: %*");
  logger->set_formatter(std::move(formatter));
  logger->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(logger);
}

// Refuses empty values, which come from unset variables of a shell, and NaN: both would have no effect.
void refuse_meaningless_values(const CLI::App& app) {
  for (const CLI::App* const command : app.get_subcommands()) refuse_meaningless_values(*command);
  for (const CLI::Option* const option : app.get_options()) {
    // A prompt is a text, which may be empty; `--resume` and others may stand alone.
    const bool may_be_empty = option->get_name() == "--prompt" || option->get_expected_min() == 0;
    for (const std::string& value : option->results()) {
      if (value.empty() && !may_be_empty)
        throw UserError("{} is empty; give a value, or leave it out", option->get_name());
      if (option->get_type_name().starts_with("FLOAT") && std::isnan(std::strtod(value.c_str(), nullptr)))
        throw UserError("{} is '{}'; it must be a number", option->get_name(), value);
    }
  }
}

std::string failure_text(const CLI::App* app, const CLI::Error& error) {
  return "strata: " + text::printable(parse_error_text(*app, error)) + "\nRun with --help for more information.\n";
}

int parse_and_act(CommandLine& line) {
  CLI::App& app = line.app;
  lay_out_help(app);
  app.failure_message(failure_text);
  std::vector<std::string> words(line.words.rbegin(), line.words.rend());
  if (words.size() > 1 && words.back() == "--log-level" && app.get_option_no_throw("--log-level") == nullptr) {
    words.pop_back();
    line.log_level = words.back();
    words.pop_back();
  }
  try {
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  refuse_meaningless_values(app);
  set_up_log(line.log_level);
  name_sudden_end();
  return line.action();
}

}  // namespace

int carry_out(CommandLine& line) {
  try {
    begin();
    return parse_and_act(line);
  } catch (const std::exception& error) {
    return report(error);
  }
}

}  // namespace strata::cli
