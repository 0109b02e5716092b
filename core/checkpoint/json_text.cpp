#include "checkpoint/json_text.hpp"

#include <nlohmann/json.hpp>
#include <strata/error.hpp>

#include <set>
#include <vector>

#include "data/file.hpp"

namespace strata::checkpoint {

nlohmann::json parse_json(std::string_view text, const std::string& path) {
  using nlohmann::json;
  std::vector<std::set<std::string>> keys;  // of the objects that are open, from the outside in
  const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > 64) throw UserError(Place{path}, "JSON nested deeper than 64 levels; this is no file of ours to read");
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second) {
      throw UserError(Place{path}, "the key '" + printable(parsed.get<std::string>()) + "' occurs twice");
    }
    return true;
  };
  try {
    json result = json::parse(text.begin(), text.end(), check);
    if (!result.is_object()) throw UserError(Place{path}, "holds JSON of another kind than an object { ... }");
    return result;
  } catch (const json::exception& error) {
    std::string what = error.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    if (const auto end = what.find("] "); end != std::string::npos) what.erase(0, end + 2);
    throw UserError(Place{path}, "is not valid JSON: " + printable(what));
  }
}

nlohmann::json parse_json_file(const data::InputFile& file, std::size_t limit) {
  const std::string& path = file.path();
  if (file.size() > limit) {
    throw UserError(Place{path}, "holds " + std::to_string(file.size()) + " bytes, and a file of its kind at most " +
                                     std::to_string(limit));
  }
  std::string text(file.size(), '\0');
  file.read_at(0, text.data(), text.size());
  return parse_json(text, path);
}

std::string printable(std::string_view text) {
  std::string result(text.substr(0, 200));
  for (char& character : result) {
    if (static_cast<unsigned char>(character) < 0x20 || character == 0x7f) character = '?';
  }
  return result;
}

}  // namespace strata::checkpoint
