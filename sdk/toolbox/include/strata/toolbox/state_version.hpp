#pragma once
#include <strata/error.hpp>
#include <strata/plugin.hpp>

#include <string>

namespace strata::toolbox {

// Throws UserError if the saved state is newer than the plugin; for the start of a plugin's load().
inline void refuse_newer_state(const Plugin& plugin, int version) {
  if (version > plugin.state_version())
    throw UserError(
        "the saved state has version {}, but this plugin reads up to version {}; use the version of the plugin that "
        "saved it, or a newer one",
        version, plugin.state_version());
}

}  // namespace strata::toolbox
