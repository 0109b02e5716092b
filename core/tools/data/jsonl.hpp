#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace strata::cli {

// Maximum bytes of a line, which is held in memory.
inline constexpr std::size_t longest_line = std::size_t{256} << 20;
// Throws UserError "FILE:LINE: ..." for a longer one.
void check_line(std::size_t bytes, const std::string& file, std::int64_t number);

// Returns the string under `key` in the JSON object `line`. Throws UserError "FILE:LINE: ..." if there is none.
std::string jsonl_text(std::string_view line, const std::string& key, const std::string& file, std::int64_t number);

}  // namespace strata::cli
