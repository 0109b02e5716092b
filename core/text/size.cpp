#include "text/size.hpp"

#include <array>
#include <cstdio>

namespace strata::config {

std::string format_bytes(std::int64_t bytes) {
  static constexpr std::array<const char*, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while ((value >= 1024.0 || value <= -1024.0) && unit + 1 < units.size()) {
    value /= 1024.0;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
  return text.data();
}

}  // namespace strata::config
