// strata_new_plugin: what `strata plugins new` runs. Reads the command line.
#include <iostream>

#include "tools/command/carry_out.hpp"
#include "tools/command/leave.hpp"
#include "tools/new_plugin/new_plugin.hpp"

using namespace strata;

int main(int argc, char* argv[]) {
  CLI::App app("Create a plugin project that builds and passes the conformance kit", "strata plugins new");
  std::string kind, name, folder = ".";
  app.add_option("kind", kind, "Kind of plugin: the part before the slash in `strata plugins list`")->required();
  app.add_option("name", name, "Name of the plugin: a-z, 0-9 and _")->required();
  app.add_option("folder", folder,
                 "Folder to write the project in; existing files are never overwritten (default: the current folder)");
  app.footer("  strata plugins new optimizer my_adam ~/plugins");
  cli::CommandLine line{app, {argv + 1, argv + argc}};
  line.action = [&] { return cli::plugins_new(kind, name, folder, std::cout); };
  cli::leave(cli::carry_out(line));
}
