#include "data/jsonl.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace strata::data {
namespace {

using Json = nlohmann::json;

bool is_control(char byte) {
  return static_cast<unsigned char>(byte) < ' ' || byte == '\x7f';
}

// The library's text without its number ("[json.exception.parse_error.101] "). It repeats bytes of the line, whatever
// they are.
std::string reason_of(const Json::exception& error) {
  std::string text = error.what();
  const std::size_t number = text.find("] ");
  if (number != std::string::npos) text.erase(0, number + 2);
  text = text.substr(0, 200);
  std::replace_if(
      text.begin(), text.end(), [](char byte) { return is_control(byte) || static_cast<unsigned char>(byte) > '~'; },
      '?');
  return text;
}

}  // namespace

std::string jsonl_text(std::string_view line, const std::string& key, const std::string& file, std::int64_t number) {
  const Place place{file, static_cast<int>(std::min<std::int64_t>(number, INT32_MAX))};
  Json object;
  try {
    object = Json::parse(line);
  } catch (const Json::exception& error) {
    throw UserError(place, "is no JSON: " + reason_of(error));
  }
  if (!object.is_object()) {
    throw UserError(place, std::string("holds ") + object.type_name() + "; each line must be a JSON object like {\"" +
                               key + "\": \"...\"}");
  }
  const auto found = object.find(key);
  if (found == object.end()) {
    std::string keys;
    for (const auto& [name, value] : object.items()) keys += (keys.empty() ? "" : ", ") + name;
    const bool printable = !keys.empty() && keys.size() <= 200 && std::none_of(keys.begin(), keys.end(), is_control);
    throw UserError(place, "has no key '" + key + "'; --jsonl-key names the one that holds the text" +
                               (printable ? " (there is: " + keys + ")" : ""));
  }
  if (!found->is_string()) {
    throw UserError(place, "its '" + key + "' is " + found->type_name() + ", and a string is wanted");
  }
  return std::move(found->get_ref<std::string&>());
}

}  // namespace strata::data
