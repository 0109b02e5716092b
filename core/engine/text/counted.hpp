#pragma once
#include <cstdint>
#include <string>

namespace strata::text {

// Returns "1 file" or "3 files".
inline std::string counted(std::int64_t number, const std::string& noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

}  // namespace strata::text
