#pragma once
#include <exception>
#include <optional>
#include <string>

namespace strata::plugin_host {

// A message for the user if `error`, from the C++ library or libtorch, means out of memory; else nothing.
std::optional<std::string> out_of_memory(const std::exception& error);

}  // namespace strata::plugin_host
