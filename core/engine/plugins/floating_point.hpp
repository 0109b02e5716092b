// Floating-point mode of this thread: rounding mode, and flushing of small numbers to zero. Every number of a run
// depends on it, so a plugin must not change it.
#pragma once
#include <cstdint>
#include <string>

namespace strata::plugins {

// Returns the control register without its status flags; 0 on unknown processors.
std::uint64_t floating_point_control();

// Returns the change since floating_point_control() was `before`, with the rule and the remedy; empty: none. Restores
// `before`.
std::string changed_floating_point(std::uint64_t before);

}  // namespace strata::plugins
