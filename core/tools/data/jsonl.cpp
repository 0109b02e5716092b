#include "tools/data/jsonl.hpp"

#include <strata/error.hpp>

#include <algorithm>

#include "text/json.hpp"
#include "text/printable.hpp"

namespace strata::cli {

std::string jsonl_text(std::string_view line, const std::string& key, const std::string& file, std::int64_t number) {
  const Place place{file, static_cast<int>(std::min<std::int64_t>(number, INT32_MAX))};
  const text::JsonDocument document(line, {file, "", place.line}, {longest_line});
  const nlohmann::json& object = document.json();
  if (!object.is_object()) {
    throw UserError(place, "holds {}; each line must be a JSON object like {{\"{}\": \"...\"}}", object.type_name(),
                    key);
  }
  const auto found = object.find(key);
  if (found == object.end()) {
    std::string keys;
    for (const auto& [name, value] : object.items()) keys += (keys.empty() ? "" : ", ") + name;
    throw UserError(place, "has no key '{}'; give the key of the text with --jsonl-key{}", key,
                    keys.empty() ? "" : " (there is: " + text::one_line(keys) + ")");
  }
  if (!found->is_string()) {
    throw UserError(place, "its '{}' is {}; it must be a string", key, found->type_name());
  }
  return found->get<std::string>();
}

void check_line(std::size_t bytes, const std::string& file, std::int64_t number) {
  if (bytes <= longest_line) return;
  throw UserError(Place{file, static_cast<int>(std::min<std::int64_t>(number, INT32_MAX))},
                  "is longer than 256 MiB; a line is one document: split it into several");
}

}  // namespace strata::cli
