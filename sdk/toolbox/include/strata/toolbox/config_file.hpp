// Values of a Hugging Face config.json, read as transformers reads them: each has a type, an absent key takes the
// default of the file's class, and null is a value that most keys refuse. Needs nlohmann/json.
#pragma once
#include <strata/error.hpp>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

namespace strata {

[[noreturn]] inline void refuse_key(const std::string& key, const nlohmann::json& value, const std::string& rule) {
  constexpr std::size_t shown = 120;
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  if (text.size() > shown) text = text.substr(0, shown) + "...";
  throw UserError("config.json: {} is {}; {}", key, text, rule);
}

// Returns the value as T. Throws UserError naming the key for a value of another type, null included.
template <class T>
T value_of(const std::string& key, const nlohmann::json& value) {
  if constexpr (std::is_same_v<T, bool>) {
    if (!value.is_boolean()) refuse_key(key, value, "it must be true or false");
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!value.is_string()) refuse_key(key, value, "it must be a text");
  } else if constexpr (std::is_integral_v<T>) {
    constexpr std::int64_t most = 1'000'000'000'000;
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() || value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most)) &&
                      value.get<std::int64_t>() >= -most;
    if (!fits) refuse_key(key, value, "it must be an integer of at most 1e12");
  } else {
    if (!value.is_number() || !std::isfinite(value.get<double>())) refuse_key(key, value, "it must be a number");
  }
  return value.get<T>();
}

// Returns the value of `key`, or `otherwise` if the object lacks it.
template <class T>
T read_key(const nlohmann::json& object, const std::string& key, const T& otherwise) {
  const auto found = object.find(key);
  return found == object.end() ? otherwise : value_of<T>(key, *found);
}

// Throws UserError with `rule` unless the object lacks `key` or has this value for it.
inline void require_key(const nlohmann::json& object, const std::string& key, const nlohmann::json& wanted,
                        const std::string& rule) {
  const auto found = object.find(key);
  if (found != object.end() && *found != wanted) refuse_key(key, *found, rule);
}

// True if the object has `key` and its value is not null.
inline bool has_value(const nlohmann::json& object, const std::string& key) {
  const auto found = object.find(key);
  return found != object.end() && !found->is_null();
}

// Parses the text of a config.json, which must be a JSON object.
inline nlohmann::json parse_config(const std::string& text) {
  nlohmann::json file;
  try {
    file = nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    const std::string what = error.what();  // "[json.exception...] parse error at line 1, ..."
    const std::size_t end = what.find("] ");
    throw UserError("config.json is not JSON: {}", end == std::string::npos ? what : what.substr(end + 2));
  }
  if (!file.is_object()) throw UserError("config.json is not a JSON object");
  return file;
}

}  // namespace strata
