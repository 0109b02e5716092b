#include "text/printable.hpp"

#include <algorithm>
#include <utility>

namespace strata::text {
namespace {

bool continues(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
}

// The bytes of the character that begins with `first`; 0 if none does.
std::size_t length_of(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return 2;
  if (first >= 0xE0 && first < 0xF0) return 3;
  return first >= 0xF0 && first < 0xF5 ? 4 : 0;
}

struct Character {
  std::size_t bytes = 0;  // 0: the first byte is no UTF-8
  char32_t code = 0;
  bool cut = false;  // `text` ends within it
};

// The character with which `text`, which is not empty, begins. Overlong forms, halves of UTF-16 pairs and what is
// beyond U+10FFFF are no UTF-8.
Character first_of(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t length = length_of(first);
  if (length == 0) return {};
  if (length == 1) return {1, first};
  auto code = static_cast<char32_t>(first & (0xFFU >> (length + 1)));
  for (std::size_t at = 1; at < length; ++at) {
    if (at == text.size()) return {0, 0, true};
    if (!continues(text[at])) return {};
    code = code << 6 | (static_cast<unsigned char>(text[at]) & 0x3FU);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  if (overlong || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return {};
  return {length, code};
}

bool is_control(char32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0);
}

std::string hexadecimal(unsigned byte) {
  constexpr std::string_view digits = "0123456789abcdef";
  return {digits[byte >> 4U], digits[byte & 15U]};
}

// Escapes the characters of `text` from its first byte to `end`; what ends within a character stays, where `more`
// comes. Returns how many bytes were taken.
std::size_t escape(std::string_view text, bool lines, bool more, std::string& result) {
  std::size_t at = 0;
  while (at < text.size()) {
    const auto plain =
        static_cast<std::size_t>(std::find_if(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(),
                                              [](signed char byte) { return byte < 0x20 || byte == 0x7F; }) -
                                 text.begin());
    result += text.substr(at, plain - at);
    at = plain;
    if (at == text.size()) break;
    const Character character = first_of(text.substr(at));
    if (character.cut && more) break;
    if (character.bytes == 0) {
      result += "\\x" + hexadecimal(static_cast<unsigned char>(text[at++]));
      continue;
    }
    const bool kept = lines && (character.code == U'\n' || character.code == U'\t');
    if (is_control(character.code) && !kept)
      result += "\\u00" + hexadecimal(static_cast<unsigned>(character.code));
    else
      result += text.substr(at, character.bytes);
    at += character.bytes;
  }
  return at;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  escape(text, true, false, result);
  return result;
}

std::string one_line(std::string_view text, std::size_t longest) {
  std::size_t length = std::min(text.size(), longest);
  while (length > 0 && length < text.size() && continues(text[length])) --length;
  std::string result;
  escape(text.substr(0, length), false, false, result);
  return length < text.size() ? result + "..." : result;
}

std::string Printable::add(std::string_view piece) {
  std::string result;
  if (rest_.empty()) {
    rest_ = piece.substr(escape(piece, true, true, result));
    return result;
  }
  const std::string whole = std::exchange(rest_, {}).append(piece);
  rest_ = whole.substr(escape(whole, true, true, result));
  return result;
}

std::string Printable::finish() {
  return printable(std::exchange(rest_, {}));
}

}  // namespace strata::text
