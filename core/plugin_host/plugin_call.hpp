// Every call into a plugin that may throw goes through call_plugin, so that an error names the plugin and the function.
#pragma once
#include <string>
#include <utility>

namespace strata::plugin_host {

// Rethrows the current exception with the prefix "plugin NAME: FUNCTION: ". UserError and EnvironmentError keep their
// class; out of memory and libtorch's communication errors become EnvironmentError; everything else, including any
// other c10::Error, becomes Bug. Only the first line of foreign errors is kept, without the stack trace.
[[noreturn]] void rethrow_from_plugin(const std::string& plugin, const std::string& function);

// `plugin` is "kind/name"; `function` may add detail: "gather (layer 3, rank 1)".
template <class Call>
decltype(auto) call_plugin(const std::string& plugin, const std::string& function, Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (...) {
    rethrow_from_plugin(plugin, function);
  }
}

}  // namespace strata::plugin_host
