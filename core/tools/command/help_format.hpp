// Layout of --help: lines of at most 140 columns, and one description of an option that can also be positional.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

namespace strata::cli {

// Returns `text` with lines broken at spaces to at most `columns` characters; words are never broken. Lines that begin
// with spaces, such as commands to copy, stay unchanged.
std::string wrap(const std::string& text, std::size_t columns);

class HelpFormat : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_description(const CLI::App* app) const override;
  std::string make_footer(const CLI::App* app) const override;
};

// Applies the layout to this command and its subcommands.
void lay_out_help(CLI::App& app);

}  // namespace strata::cli
