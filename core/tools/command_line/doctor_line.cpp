// doctor.
#include "tools/command_line/command_line.hpp"

#include <iostream>

#include "plugin_host/engine_plugins.hpp"
#include "tools/commands/doctor_command.hpp"

namespace strata::cli {

void add_doctor_command(CLI::App& app, Action& action) {
  app.add_subcommand("doctor", "Show this machine's resources and which plugins work on it")->callback([&action] {
    action = [] { return doctor_command(*plugin_host::open_registry(""), std::cout); };
  });
}

}  // namespace strata::cli
