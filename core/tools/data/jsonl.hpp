#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "data/file.hpp"

namespace strata::data {

// Calls visit(line without newline, line number from 1, bytes of the file up to the end of the line). The last line
// needs no newline.
void for_each_line(const InputFile& file,
                   const std::function<void(std::string_view, std::int64_t, std::uint64_t)>& visit);

// The string under `key` in the JSON object `line`. Throws UserError "FILE:LINE: ..." if there is none.
std::string jsonl_text(std::string_view line, const std::string& key, const std::string& file, std::int64_t number);

}  // namespace strata::data
