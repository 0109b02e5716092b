#pragma once
#include <algorithm>
#include <string>
#include <vector>

namespace strata::text {

// Returns "a, b, c and 25 more".
inline std::string first_of(const std::vector<std::string>& names, std::size_t most) {
  std::string text;
  for (std::size_t i = 0; i < std::min(most, names.size()); ++i) text += (i > 0 ? ", " : "") + names[i];
  return names.size() > most ? text + " and " + std::to_string(names.size() - most) + " more" : text;
}

}  // namespace strata::text
