// plugins.
#include "tools/command_line/command_line.hpp"

#include <iostream>

#include "plugin_host/engine_plugins.hpp"
#include "tools/commands/check_command.hpp"
#include "tools/commands/new_command.hpp"
#include "tools/commands/plugins_command.hpp"

namespace strata::cli {

using plugin_host::open_registry;

void add_plugins_command(CLI::App& app, Action& action) {
  CLI::App& plugins = *app.add_subcommand("plugins", "The strategies there are, and their options");
  static std::string plugin_path, format = "table", plugin, kind, name, folder = ".";
  static bool all = false;
  plugins.require_subcommand(1);
  plugins.add_option("--plugin-path", plugin_path, "Folders to search first, separated by colons");
  CLI::App& list = *plugins.add_subcommand("list", "Every plugin on the search path; nothing is loaded");
  list.add_option("--format", format, "table, markdown, csv or json")->check(CLI::IsMember(table_formats));
  list.callback([&action] { action = [] { return plugins_list(*open_registry(plugin_path), format, std::cout); }; });
  CLI::App& show = *plugins.add_subcommand("show", "One plugin and its options");
  show.add_option("plugin", plugin, "KIND/NAME, or the absolute path of a library");
  show.add_flag("--all", all, "All of them: the option reference");
  show.add_option("--format", format, "table, markdown, csv or json")->check(CLI::IsMember(table_formats));
  show.callback(
      [&action] { action = [] { return plugins_show(*open_registry(plugin_path), plugin, all, format, std::cout); }; });
  // Its options are those of the program that it starts, which prints them: plugins check --help.
  CLI::App& check = *plugins.add_subcommand("check", "What a plugin does wrong: the conformance kit of the SDK");
  check.set_help_flag();
  check.prefix_command();
  check.callback([&action, command = &check] {
    action = [command] {
      std::vector<std::string> arguments = command->remaining();
      if (!plugin_path.empty()) arguments.insert(arguments.end(), {"--plugin-path", plugin_path});
      return check_command(arguments);
    };
  });
  CLI::App& make =
      *plugins.add_subcommand("new", "A project for a plugin of your own, which builds and passes as it is");
  make.add_option("kind", kind, "A kind of plugin, as in `strata plugins list` before the slash")->required();
  make.add_option("name", name, "The plugin's name: a-z, 0-9 and _")->required();
  make.add_option("folder", folder, "Where to write it (default: the current folder); nothing is overwritten");
  make.callback([&action] { action = [] { return plugins_new(kind, name, folder, std::cout); }; });
}

}  // namespace strata::cli
