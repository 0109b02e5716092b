// defines: format_bytes, parse_bytes
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace strata::config {

// "1.50 GiB", "12 B": for people; three significant digits.
std::string format_bytes(std::int64_t bytes);

// 65536, 16MB (10^6), "16 MiB" (2^20), 1.5GiB. Units: B, kB or KB, MB, GB, TB, KiB, MiB, GiB, TiB; nothing for any
// other spelling, a negative size, or one that is no whole number of bytes.
std::optional<std::int64_t> parse_bytes(std::string_view text);

}  // namespace strata::config
