// Every call into a plugin that may throw goes through call_plugin, so that an error names who threw it and doing what.
#pragma once
#include <string>
#include <utility>

namespace strata::plugin_host {

// Throws the exception being handled again with "plugin NAME: FUNCTION: " in front. UserError and EnvironmentError stay
// what they are; running out of memory and libtorch's communication errors become EnvironmentError; everything else,
// any other c10::Error included, becomes Bug. Of foreign errors the first line is kept: a stack trace follows it.
[[noreturn]] void rethrow_from_plugin(const std::string& plugin, const std::string& function);

// `plugin` is "kind/name"; `function` may say more than the name: "gather (layer 3, rank 1)".
template <class Call>
decltype(auto) call_plugin(const std::string& plugin, const std::string& function, Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (...) {
    rethrow_from_plugin(plugin, function);
  }
}

}  // namespace strata::plugin_host
