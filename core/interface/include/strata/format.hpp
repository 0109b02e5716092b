// Formats texts with values: format("{} is {}; give {}", key, value, "1 or more"). Each {} is replaced by the next
// value; {{ and }} are braces. A text whose number of {} differs from the number of values does not compile.
#pragma once
#include <strata/export.hpp>

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace strata {

// Place in C++ code; as a default argument, the caller's place. Replaces std::source_location for compilers that lack
// it (clang 14 with libstdc++ 12).
struct SourcePlace {
  const char* file = "";
  int line = 0;
  static constexpr SourcePlace current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

// Returns the shortest text that reads back as the same number: 0.5, 1e-05.
STRATA_EXPORT std::string text_of(double value);
STRATA_EXPORT std::string text_of(float value);

// Returns a value's text in messages: strings as they are, true or false, numbers, and types with a to_string().
template <typename Value>
std::string text_of(const Value& value) {
  if constexpr (std::is_convertible_v<const Value&, std::string_view>)
    return std::string(std::string_view(value));
  else if constexpr (std::same_as<Value, bool>)
    return value ? "true" : "false";
  else if constexpr (std::same_as<Value, char>)
    return std::string(1, value);
  else if constexpr (std::integral<Value>)
    return std::to_string(value);
  else
    return to_string(value);
}

// Text with one {} per value, checked by the compiler, and its place in the source.
template <typename... Values>
struct FormatText {
  template <typename Text>
  requires std::is_convertible_v<const Text&, std::string_view>
  consteval FormatText(const Text& given, SourcePlace place = SourcePlace::current()) : text(given), where(place) {
    std::size_t found = 0;
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (text[at] != '{' && text[at] != '}') continue;
      const bool is_value = text[at] == '{' && at + 1 < text.size() && text[at + 1] == '}';
      const bool is_brace = at + 1 < text.size() && text[at + 1] == text[at];
      if (!is_value && !is_brace) throw "a brace stands alone; write {{ or }}";
      found += is_value ? 1 : 0;
      ++at;
    }
    if (found != sizeof...(Values)) throw "the number of {} is not the number of values";
  }
  std::string_view text;
  SourcePlace where;
};

// Replaces each {} of a checked text by the next of the values, and {{ and }} by braces.
STRATA_EXPORT std::string format_values(std::string_view text, std::initializer_list<std::string> values);

template <typename... Values>
std::string format(const FormatText<std::type_identity_t<Values>...>& text, const Values&... values) {
  return format_values(text.text, {text_of(values)...});
}

}  // namespace strata
