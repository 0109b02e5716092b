// Every call into a plugin that may throw goes through plugin_call, so that an error names the plugin and the function.
#pragma once
#include <strata/format.hpp>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace strata::plugins {

// Rethrows the current exception with the prefix "plugin NAME: FUNCTION: ". UserError and EnvironmentError keep their
// class; errors of the machine (machine_error) become EnvironmentError; everything else, including any
// other c10::Error, becomes Bug. Only the first line of foreign errors is kept, without the stack trace.
[[noreturn]] void rethrow_from_plugin(const std::string& plugin, const std::string& function);

// RAII record of the plugin call in progress, used to name the culprit if the process exits.
class CallInProgress {
 public:
  // Records a call. The arguments' targets must outlive it; text_of(function) names the plugin's function.
  CallInProgress(const std::string& plugin, const void* function, std::string (*text_of)(const void* function));
  ~CallInProgress();
  CallInProgress(const CallInProgress&) = delete;
  CallInProgress& operator=(const CallInProgress&) = delete;

  const std::string& plugin() const { return plugin_; }
  std::string function() const { return text_of_(function_); }
  // Throws Bug, and restores this thread's floating-point mode, if the call changed it.
  void check_floating_point() const;
  // Returns the innermost call of this thread, or the newest of any other thread; null: there is none.
  static const CallInProgress* now();

 private:
  const std::string& plugin_;
  const void* function_;
  std::string (*text_of_)(const void*);
  const CallInProgress* outer_;
  std::uint64_t floating_point_;
};

// Runs `work`. `plugin` is "kind/name"; `function` is a text, "gather (layer 3)", or returns one when called, so that
// it is built only for an error.
template <typename Function, typename Work>
decltype(auto) plugin_call(const std::string& plugin, Function&& function, Work&& work) {
  const auto text_of = [](const void* text) -> std::string {
    const auto& given = *static_cast<const std::remove_cvref_t<Function>*>(text);
    if constexpr (std::is_invocable_v<Function>)
      return given();
    else
      return given;
  };
  try {
    const CallInProgress call(plugin, &function, text_of);
    if constexpr (std::is_void_v<std::invoke_result_t<Work>>) {
      std::forward<Work>(work)();
      call.check_floating_point();
    } else {
      decltype(auto) result = std::forward<Work>(work)();
      call.check_floating_point();
      return result;
    }
  } catch (...) {
    rethrow_from_plugin(plugin, text_of(&function));
  }
}

// Runs `work` on a rank of a run; errors name the rank too.
template <typename Function, typename Work>
decltype(auto) plugin_call(const std::string& plugin, Function&& function, int rank, Work&& work) {
  const auto on_rank = [&] {
    if constexpr (std::is_invocable_v<Function>)
      return format("{} on rank {}", function(), rank);
    else
      return format("{} on rank {}", function, rank);
  };
  return plugin_call(plugin, on_rank, std::forward<Work>(work));
}

}  // namespace strata::plugins
