#pragma once

#include <cstdio>
#include <string>

namespace strata::text {

// Formats as std::snprintf does; cuts texts longer than 255 characters.
template <typename... Values>
std::string formatted(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

}  // namespace strata::text
