// defines: plugin_call
#pragma once
#include <strata/error.hpp>

#include <exception>
#include <string>
#include <type_traits>
#include <utility>

namespace strata::runtime {

// Rethrows the exception under way with the place it left: "partitioner/zero3 in gather(layer 3) on rank 1: ...". Strata's own
// errors keep their kind; anything else becomes a Bug of the plugin.
[[noreturn]] void rethrow_named(const std::string& plugin, const std::string& function, int rank);

// Runs `work`, a call into a plugin; every exception that leaves it is named. `function` is a string or gives one when called, so
// that the text is built only when it is needed.
template <typename Function, typename Work>
decltype(auto) plugin_call(const std::string& plugin, Function&& function, int rank, Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (...) {
    if constexpr (std::is_invocable_v<Function>)
      rethrow_named(plugin, function(), rank);
    else
      rethrow_named(plugin, function, rank);
  }
}

}  // namespace strata::runtime
