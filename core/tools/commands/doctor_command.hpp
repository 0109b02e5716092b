#pragma once
#include <iosfwd>

#include "plugin_host/registry.hpp"

namespace strata::cli {

// `strata doctor`: prints this machine's resources and which plugins work on it. Returns 0 if training can run, else 3.
int doctor_command(plugin_host::PluginRegistry& registry, std::ostream& out);

}  // namespace strata::cli
