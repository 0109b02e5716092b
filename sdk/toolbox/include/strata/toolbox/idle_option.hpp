// Check of options that act only in combination with another option.
#pragma once
#include <strata/error.hpp>

#include <concepts>
#include <sstream>
#include <string>

namespace strata::toolbox {

// Throws UserError for an option that differs from its default and has no effect with the other options. `without`: the
// setting that would give it effect, e.g. "error_feedback". `plugin`: the plugin's name, for the error.
template <typename Value>
void check_idle(const std::string& plugin, const std::string& option, const Value& value,
                const std::type_identity_t<Value>& otherwise, const std::string& without) {
  if (value == otherwise) return;
  std::ostringstream text;
  text << std::boolalpha << value;
  throw UserError("{}: {} is {}, but it has no effect without {}; set that, or remove {}", plugin, option, text.str(),
                  without, option);
}

}  // namespace strata::toolbox
