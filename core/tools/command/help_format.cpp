#include "tools/command/help_format.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <sstream>

namespace strata::cli {

namespace {

// Of the terminal, if standard output is one.
std::size_t columns() {
  constexpr std::size_t least = 60, most = 140;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return most;
  return std::clamp<std::size_t>(size.ws_col, least, most);
}

void wrap_line(const std::string& line, std::size_t limit, std::ostringstream& out) {
  std::size_t width = 0;
  std::istringstream words(line);
  for (std::string word; words >> word; width += word.size()) {
    if (width > 0 && width + 1 + word.size() > limit) {
      out << '\n';
      width = 0;
    } else if (width > 0) {
      out << ' ';
      ++width;
    }
    out << word;
  }
}

}  // namespace

std::string wrap(const std::string& text, std::size_t limit) {
  std::ostringstream out;
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); begin < text.size(); end = text.find('\n', begin)) {
    const std::string line = text.substr(begin, end - begin);
    if (line.starts_with(' ') || line.size() <= limit)
      out << line;
    else
      wrap_line(line, limit, out);
    if (end == std::string::npos) break;
    out << '\n';
    begin = end + 1;
  }
  return out.str();
}

std::string HelpFormat::make_option(const CLI::Option* option, bool is_positional) const {
  const bool again = !is_positional && option->get_positional();
  std::string text = "  " + make_option_name(option, is_positional);
  std::string values = again ? " " + option->get_type_name() : make_option_opts(option);
  // One value each time that the option is given.
  if (const std::size_t more = values.find(" ..."); more != std::string::npos && !option->get_allow_extra_args())
    values.erase(more, 4);
  text += values;
  const std::string description =
      again ? "Same as the positional argument " + make_option_name(option, true) : make_option_desc(option);
  if (description.empty()) return text + "\n";
  const std::size_t column = get_column_width();
  const std::string indent(column, ' ');
  text += text.size() < column ? std::string(column - text.size(), ' ') : "\n" + indent;
  for (const char c : wrap(description, columns() - column)) {
    text += c;
    if (c == '\n') text += indent;
  }
  return text + "\n";
}

std::string HelpFormat::make_description(const CLI::App* app) const {
  return wrap(CLI::Formatter::make_description(app), columns());
}

std::string HelpFormat::make_footer(const CLI::App* app) const {
  return wrap(CLI::Formatter::make_footer(app), columns());
}

void lay_out_help(CLI::App& app) {
  app.formatter(std::make_shared<HelpFormat>());
  for (CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; })) lay_out_help(*command);
}

}  // namespace strata::cli
