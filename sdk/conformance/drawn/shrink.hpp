// Reduces the choices of a failing world to simpler ones that still fail.
#pragma once
#include <functional>
#include <optional>

#include "conformance/drawn/draws.hpp"

namespace strata::conformance {

// Returns the simplest choices found. `fails` carries out a world and returns the choices that it took, or nothing if
// it does not fail. Ends when no simpler world fails, or after `worlds` worlds. Simpler: fewer choices, or equally many
// with a smaller first difference.
Choices shrunk(Choices failing, int worlds, const std::function<std::optional<Choices>(const Choices&)>& fails);

}  // namespace strata::conformance
