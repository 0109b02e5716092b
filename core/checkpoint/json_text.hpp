#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "data/file.hpp"

namespace strata::checkpoint {

// One JSON object from `text`, which comes from the file `path`. Throws UserError "PATH: ..." when it is no JSON, no
// object, says a key twice (the library alone would keep the last) or nests deeper than 64 levels.
nlohmann::json parse_json(std::string_view text, const std::string& path);
// The same of a whole file of at most `limit` bytes.
nlohmann::json parse_json_file(const data::InputFile& file, std::size_t limit);
// `text` for a one-line message: control characters as '?', at most 200 bytes.
std::string printable(std::string_view text);

}  // namespace strata::checkpoint
