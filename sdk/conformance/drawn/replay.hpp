// Choices as the argument of --replay: "3.0.12".
#pragma once
#include <string>
#include <string_view>

#include "conformance/drawn/draws.hpp"

namespace strata::conformance {

std::string replay_of(const Choices& choices);
// Parses a text of replay_of(). Throws UserError for any other text.
Choices choices_of(std::string_view replay);

}  // namespace strata::conformance
