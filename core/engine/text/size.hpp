#pragma once
#include <cstdint>
#include <string>

namespace strata::text {

// Returns "1.50 GiB" or "12 B": for people, three significant digits.
std::string format_bytes(std::int64_t bytes);

}  // namespace strata::text
