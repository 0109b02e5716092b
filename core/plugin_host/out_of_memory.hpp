#pragma once
#include <exception>
#include <optional>
#include <string>

namespace strata::plugin_host {

// What to tell when `error`, of the C++ library or of libtorch, says that memory has run out; nothing when it says
// something else.
std::optional<std::string> out_of_memory(const std::exception& error);

}  // namespace strata::plugin_host
