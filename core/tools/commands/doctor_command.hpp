#pragma once
#include <iosfwd>

#include "plugin_host/registry.hpp"

namespace strata::cli {

// `strata doctor`: what this machine has and which plugins can be used here. Returns 0 when training can run, 3 when
// not.
int doctor_command(plugin_host::PluginRegistry& registry, std::ostream& out);

}  // namespace strata::cli
