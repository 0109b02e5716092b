// `strata plugins list` and `strata plugins show`: the plugins on the search path, from manifests. No plugin is loaded.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "plugins/registry.hpp"

namespace strata::cli {

// Returns "0 to 64 ms", ">= 0" or the choices; empty: no limits.
std::string range_with_unit(const OptionSpec& option);

// Returns `text` with each choice on its own line if it lists choices, as in "Format. int8: 8 bits; exact: none."
std::string cases_apart(std::string text, const OptionSpec& option);

// Returns all usable plugins that are not shadowed by another of the same name.
std::vector<const plugins::FoundPlugin*> usable_plugins(plugins::PluginRegistry& registry);

// Returns a Markdown section per plugin: its description, and a table of its options.
void print_options(const std::vector<const plugins::FoundPlugin*>& plugins, std::ostream& out);

// Prints one line per file or registered plugin: kind/name, version, description, file, and the reason if it is
// unusable or shadowed. An unusable file does not fail the command. `format` is table, markdown, csv or json; others
// throw UserError. Returns the exit status.
int plugins_list(plugins::PluginRegistry& registry, const std::string& format, std::ostream& out);

// Describes a plugin and its options: type, default, range, unit, documentation. `which` is KIND/NAME or an absolute
// path. With `all`, `which` is empty and every usable plugin is shown; in Markdown this is the option reference with
// one section per plugin. Throws UserError or EnvironmentError if the plugin cannot be found or used. Returns the exit
// status.
int plugins_show(plugins::PluginRegistry& registry, const std::string& which, bool all, const std::string& format,
                 std::ostream& out);

}  // namespace strata::cli
