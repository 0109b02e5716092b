// How --help is laid out: lines of at most 140 columns, and an option that may also be given by its place described
// once.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

namespace strata::cli {

// `text` with its lines broken at spaces so that each has at most `columns` characters; a word is never broken. A line
// that begins with spaces, such as a command to copy, stays as it is.
std::string wrap(const std::string& text, std::size_t columns);

class HelpFormat : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_description(const CLI::App* app) const override;
  std::string make_footer(const CLI::App* app) const override;
};

// For this command and those below it.
void lay_out_help(CLI::App& app);

}  // namespace strata::cli
