// Every call into a plugin that may throw goes through plugin_call, so that an error names the plugin and the function.
#pragma once
#include <exception>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace strata::plugin_host {

// The first line of an error's text, without the stack trace that libtorch appends.
std::string first_line(const std::exception& error);

// A message for the user if `error`, from the C++ library or libtorch, means out of memory; else nothing.
std::optional<std::string> out_of_memory(const std::exception& error);

// Rethrows the current exception with the prefix "plugin NAME: FUNCTION: ". UserError and EnvironmentError keep their
// class; out of memory and libtorch's communication errors become EnvironmentError; everything else, including any
// other c10::Error, becomes Bug. Only the first line of foreign errors is kept, without the stack trace.
[[noreturn]] void rethrow_from_plugin(const std::string& plugin, const std::string& function);

// Runs `work`. `plugin` is "kind/name"; `function` is a text, "gather (layer 3)", or gives one when called, so that it
// is built only when there is an error to name.
template <typename Function, typename Work>
decltype(auto) plugin_call(const std::string& plugin, Function&& function, Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (...) {
    if constexpr (std::is_invocable_v<Function>)
      rethrow_from_plugin(plugin, function());
    else
      rethrow_from_plugin(plugin, function);
  }
}

// The same on a rank of a run, which the error names too.
template <typename Function, typename Work>
decltype(auto) plugin_call(const std::string& plugin, Function&& function, int rank, Work&& work) {
  const auto on_rank = [&] {
    if constexpr (std::is_invocable_v<Function>)
      return function() + " on rank " + std::to_string(rank);
    else
      return std::string(function) + " on rank " + std::to_string(rank);
  };
  return plugin_call(plugin, on_rank, std::forward<Work>(work));
}

}  // namespace strata::plugin_host

namespace strata::runtime {
using plugin_host::plugin_call;
}
