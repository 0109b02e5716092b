// Errors of the standard library and of libtorch about missing resources of the machine: memory, threads, files, a
// disk, a connection.
#pragma once
#include <exception>
#include <optional>
#include <string>

namespace strata::plugins {

// Returns the first line of an error's text, without the stack traces and source places that libraries add.
std::string first_line(const std::exception& error);

// Returns the text of an EnvironmentError, with a remedy, for an error of the machine; empty for any other.
std::optional<std::string> machine_error(const std::exception& error);

// Rethrows the current exception to a program that uses the engine, within a catch block. An error of the machine
// becomes an EnvironmentError, and the text of each of Strata's errors is printable.
[[noreturn]] void rethrow_to_program();

// Calls `work` for a program that uses the engine.
template <typename Work>
decltype(auto) for_program(Work&& work) {
  try {
    return work();
  } catch (...) {
    rethrow_to_program();
  }
}

// Stops libtorch's log to standard error, unless TORCH_CPP_LOG_LEVEL is set: relevant messages also come as errors, and
// the rest concerns its internals.
void silence_libraries();

}  // namespace strata::plugins
