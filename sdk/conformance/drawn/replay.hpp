// Choices as the word behind --replay: "3.0.12".
#pragma once
#include <string>
#include <string_view>

#include "conformance/drawn/draws.hpp"

namespace strata::conformance {

std::string replay_of(const Choices& choices);
// Throws UserError for what replay_of() does not write.
Choices choices_of(std::string_view replay);

}  // namespace strata::conformance
