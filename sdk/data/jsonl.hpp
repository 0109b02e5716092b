#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace strata::data {

// The string under `key` in the JSON object `line`. Throws UserError "FILE:LINE: ..." if there is none.
std::string jsonl_text(std::string_view line, const std::string& key, const std::string& file, std::int64_t number);

}  // namespace strata::data
