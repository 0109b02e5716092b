// `strata plugins list` and `strata plugins show`: the plugins on the search path, from manifests. No plugin is loaded.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "plugins/registry.hpp"

namespace strata::cli {

// "0 to 64 ms", ">= 0" or the choices; empty: anything of the type.
std::string range_with_unit(const OptionSpec& option);

// `text` with each choice on a line of its own if it lists them, as in "Format. int8: 8 bits; exact: none."
std::string cases_apart(std::string text, const OptionSpec& option);

// All that can be used, and are not shadowed by another of their name.
std::vector<const plugins::FoundPlugin*> usable_plugins(plugins::PluginRegistry& registry);

// A Markdown section a plugin: what it is, and a table of its options.
void print_options(const std::vector<const plugins::FoundPlugin*>& plugins, std::ostream& out);

// One line per file or registered plugin: kind/name, version, description, file, and why it cannot be used or what
// shadows it. An unusable file does not fail the command. `format` is table, markdown, csv or json; others throw
// UserError. Returns the exit status.
int plugins_list(plugins::PluginRegistry& registry, const std::string& format, std::ostream& out);

// Describes a plugin and its options: type, default, range, unit, documentation. `which` is KIND/NAME or an absolute
// path. With `all`, `which` is empty and every usable plugin is shown; in Markdown this is the option reference with
// one section per plugin. Throws UserError or EnvironmentError if the plugin cannot be found or used. Returns the exit
// status.
int plugins_show(plugins::PluginRegistry& registry, const std::string& which, bool all, const std::string& format,
                 std::ostream& out);

}  // namespace strata::cli
