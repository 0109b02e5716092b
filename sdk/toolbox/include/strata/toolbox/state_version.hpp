#pragma once
#include <strata/error.hpp>
#include <strata/plugin.hpp>

#include <string>

namespace strata::toolbox {

// What a plugin's load() does first: throws UserError when the state is of a newer version than the plugin's own.
inline void refuse_newer_state(const Plugin& plugin, int version) {
  if (version > plugin.state_version())
    throw UserError("the state is of version " + std::to_string(version) + ", and this plugin reads up to version " +
                    std::to_string(plugin.state_version()) + "; use the plugin that saved it, or a newer one");
}

}  // namespace strata::toolbox
