#include "text/size.hpp"

#include <fmt/format.h>

#include <array>

namespace strata::text {

std::string format_bytes(std::int64_t bytes) {
  static constexpr std::array<const char*, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while ((value >= 1024.0 || value <= -1024.0) && unit + 1 < units.size()) {
    value /= 1024.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, units[unit]);
}

}  // namespace strata::text
