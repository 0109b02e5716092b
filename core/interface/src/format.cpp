#include <strata/format.hpp>

#include <array>
#include <charconv>

namespace strata {

namespace {
template <typename Number>
std::string shortest(Number value) {
  std::array<char, 32> text;
  const std::to_chars_result end = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end.ptr};
}
}  // namespace

std::string text_of(double value) {
  return shortest(value);
}
std::string text_of(float value) {
  return shortest(value);
}

std::string format_values(std::string_view text, std::initializer_list<std::string> values) {
  std::string result;
  const std::string* next = values.begin();
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '{' && text[at] != '}') {
      result += text[at];
      continue;
    }
    if (text[at] == '{' && text[at + 1] == '}')
      result += *next++;
    else
      result += text[at];
    ++at;
  }
  return result;
}

}  // namespace strata
