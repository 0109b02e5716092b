#pragma once
#include <string>
#include <type_traits>
#include <utility>

#include "plugin_host/plugin_call.hpp"

namespace strata::runtime {

// Runs `work`, a call into a plugin; every exception that leaves it is named. `function` is a string or gives one when
// called, so that the text is built only when it is needed.
template <typename Function, typename Work>
decltype(auto) plugin_call(const std::string& plugin, Function&& function, int rank, Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (...) {
    if constexpr (std::is_invocable_v<Function>)
      plugin_host::rethrow_from_plugin(plugin, function() + " on rank " + std::to_string(rank));
    else
      plugin_host::rethrow_from_plugin(plugin, std::string(function) + " on rank " + std::to_string(rank));
  }
}

}  // namespace strata::runtime
