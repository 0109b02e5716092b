#include "config/size.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "config/scalar.hpp"

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

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, std::int64_t>, 11> units{{{"", 1},
                                                                                    {"B", 1},
                                                                                    {"kB", 1'000},
                                                                                    {"KB", 1'000},
                                                                                    {"MB", 1'000'000},
                                                                                    {"GB", 1'000'000'000},
                                                                                    {"TB", 1'000'000'000'000},
                                                                                    {"KiB", std::int64_t{1} << 10},
                                                                                    {"MiB", std::int64_t{1} << 20},
                                                                                    {"GiB", std::int64_t{1} << 30},
                                                                                    {"TiB", std::int64_t{1} << 40}}};
  const std::size_t last_digit = text.find_last_of("0123456789.");
  if (last_digit == std::string_view::npos) return {};
  std::string_view unit = text.substr(last_digit + 1);
  if (unit.size() > 1 && unit.front() == ' ') unit.remove_prefix(1);
  const std::string_view number = text.substr(0, last_digit + 1);
  for (const auto& [name, factor] : units) {
    if (unit != name) continue;
    if (const std::optional<std::int64_t> whole = parse_integer(number)) {
      std::int64_t bytes = 0;
      if (*whole < 0 || __builtin_mul_overflow(*whole, factor, &bytes)) return {};
      return bytes;
    }
    const std::optional<double> fraction = parse_number(number);
    if (!fraction) return {};
    const double bytes = *fraction * static_cast<double>(factor);
    if (bytes < 0 || bytes > 9e15 || bytes != std::floor(bytes)) return {};
    return static_cast<std::int64_t>(bytes);
  }
  return {};
}

}  // namespace strata::config
