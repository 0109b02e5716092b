// Errors of the standard library and of libtorch that say that the machine lacks something: memory, threads, files, a
// disk, a connection.
#pragma once
#include <exception>
#include <optional>
#include <string>

namespace strata::plugin_host {

// The first line of an error's text, without the stack traces and the places in their own sources that libraries add.
std::string first_line(const std::exception& error);

// The sentence for such an error, with what to do; nothing for any other. It is the text of an EnvironmentError.
std::optional<std::string> machine_error(const std::exception& error);

// Within a catch block: throws the error in flight to a program that uses the engine. An error of the machine becomes
// an EnvironmentError, and the text of each of Strata's errors is printable.
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

// libtorch logs nothing to standard error any more, unless TORCH_CPP_LOG_LEVEL is set: what it has to say comes as an
// error too, and else it is about its own insides.
void silence_libraries();

}  // namespace strata::plugin_host
