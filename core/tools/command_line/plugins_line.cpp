// plugins.
#include "tools/command_line/command_line.hpp"

#include <iostream>

#include "plugin_host/engine_plugins.hpp"
#include "tools/commands/new_command.hpp"
#include "tools/commands/plugins_command.hpp"

namespace strata::cli {

using plugin_host::open_registry;

void add_plugins_command(CLI::App& app, Action& action) {
  CLI::App& plugins = *app.add_subcommand("plugins", "List, describe, check and create plugins");
  static std::string plugin_path, format = "table", plugin, kind, name, folder = ".";
  static bool all = false;
  plugins.require_subcommand(1);
  plugins.add_option("--plugin-path", plugin_path, "Folders to search for plugins first, separated by colons");
  CLI::App& list = *plugins.add_subcommand("list", "List every plugin on the search path, without loading any");
  list.add_option("--format", format, "Output format")->check(CLI::IsMember(table_formats))->capture_default_str();
  list.callback([&action] { action = [] { return plugins_list(*open_registry(plugin_path), format, std::cout); }; });
  CLI::App& show = *plugins.add_subcommand("show", "Describe a plugin and its options");
  show.add_option("plugin", plugin, "KIND/NAME, or the absolute path of a plugin library");
  show.add_flag("--all", all, "Describe every plugin: the option reference");
  show.add_option("--format", format, "Output format")->check(CLI::IsMember(table_formats))->capture_default_str();
  show.footer(
      "  strata plugins show partitioner/zero3\n"
      "  strata plugins show --all --format markdown");
  show.callback(
      [&action] { action = [] { return plugins_show(*open_registry(plugin_path), plugin, all, format, std::cout); }; });
  add_sdk_command(plugins, action, "check", "Run the SDK's conformance kit on a plugin", "strata_conformance",
                  "--plugin-path");
  CLI::App& make = *plugins.add_subcommand("new", "Create a plugin project that builds and passes the kit");
  make.add_option("kind", kind, "Kind of plugin: the part before the slash in `strata plugins list`")->required();
  make.add_option("name", name, "Name of the plugin: a-z, 0-9 and _")->required();
  make.add_option("folder", folder,
                  "Folder to write the project in; existing files are never overwritten (default: the current folder)");
  make.footer("  strata plugins new optimizer my_adam ~/plugins");
  make.callback([&action] { action = [] { return plugins_new(kind, name, folder, std::cout); }; });
}

}  // namespace strata::cli
