// `strata plugins list` and `strata plugins show`: what is on the search path, from manifests alone. Nothing is loaded.
#pragma once
#include <iosfwd>
#include <string>

#include "plugin_host/registry.hpp"

namespace strata::cli {

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
