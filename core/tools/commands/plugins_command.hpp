// `strata plugins list` and `strata plugins show`: what is on the search path, from manifests alone. Nothing is loaded.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "plugin_host/registry.hpp"

namespace strata::cli {

// "0 to 64", "from 0" or the choices; empty: anything of the type.
std::string range_of(const OptionSpec& option);

// All that can be used, and are not shadowed by another of their name.
std::vector<const plugin_host::FoundPlugin*> usable_plugins(plugin_host::PluginRegistry& registry);

// A Markdown section a plugin: what it is, and a table of its options.
void print_options(const std::vector<const plugin_host::FoundPlugin*>& plugins, std::ostream& out);

// One line a file or registered plugin: kind/name, version, description, file, and why it cannot be used or what
// shadows it. A file that cannot be used does not fail the command. `format` is table, markdown, csv or json; throws
// UserError for another. Returns the exit status.
int plugins_list(plugin_host::PluginRegistry& registry, const std::string& format, std::ostream& out);

// What one plugin says of itself and its options: type, default, range, unit, documentation. `which` is KIND/NAME or an
// absolute path; with `all` it is empty and every usable plugin is shown, which makes the option reference: in Markdown
// a document with a section a plugin. Throws UserError or EnvironmentError when the plugin cannot be found or used.
// Returns the exit status.
int plugins_show(plugin_host::PluginRegistry& registry, const std::string& which, bool all, const std::string& format,
                 std::ostream& out);

}  // namespace strata::cli
