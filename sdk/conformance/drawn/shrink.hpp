// From choices whose world fails to simpler ones whose world still fails.
#pragma once
#include <functional>
#include <optional>

#include "conformance/drawn/draws.hpp"

namespace strata::conformance {

// `fails` carries a world out and gives the choices that it took, or nothing where it does not fail. Ends when nothing
// simpler fails, or after so many worlds. Simpler: fewer choices, or as many of which the first that differs is less.
Choices shrunk(Choices failing, int worlds, const std::function<std::optional<Choices>(const Choices&)>& fails);

}  // namespace strata::conformance
