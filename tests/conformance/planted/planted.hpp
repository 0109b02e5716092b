// A planted plugin is a small correct one that asks, at the places where authors go wrong, whether it is to do so.
#pragma once
#include <string_view>

namespace strata::planted {

// What this library is built to do wrong, "none" in the one that does everything right: the generated file of each
// library defines it.
extern const char* const defect;

inline bool has(std::string_view name) {
  return name == defect;
}

}  // namespace strata::planted
