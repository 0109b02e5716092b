// How this thread's processor computes: its rounding mode, and whether it takes small numbers for zero. Every number of
// a run depends on it, so a plugin must leave it alone.
#pragma once
#include <cstdint>
#include <string>

namespace strata::plugin_host {

// The control register without the flags of what happened; 0 on processors that are not known here.
std::uint64_t floating_point_control();

// What has changed since floating_point_control() was `before`, with the rule and the remedy; empty: nothing. Puts it
// back to `before`.
std::string changed_floating_point(std::uint64_t before);

}  // namespace strata::plugin_host
