#pragma once

#include <cstdio>
#include <string>

namespace strata::report {

// As std::snprintf writes it; what is longer than 255 characters is cut off.
template <typename... Values>
std::string formatted(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

}  // namespace strata::report
