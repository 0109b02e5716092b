#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace strata::tokenizer {

struct Character {
  char32_t code = 0;
  std::size_t bytes = 0;
};

// Returns the character at `position` of valid UTF-8.
inline Character character_at(std::string_view text, std::size_t position) {
  const auto byte = [&](std::size_t index) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[position + index]));
  };
  const char32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xe0) return {(first & 0x1f) << 6 | (byte(1) & 0x3f), 2};
  if (first < 0xf0) return {(first & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f), 3};
  return {(first & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f), 4};
}

// Returns the bytes at `position` that are a character (`valid`), or the longest incomplete start of one, which becomes
// one U+FFFD.
struct Sequence {
  std::size_t bytes = 0;
  bool valid = false;
};
Sequence sequence_at(std::string_view text, std::size_t position);

// Returns `text` itself if it is valid UTF-8, otherwise a copy in `repaired` with U+FFFD for invalid bytes, as Python's
// bytes.decode(errors="replace").
std::string_view valid_utf8(std::string_view text, std::string& repaired);

void append_utf8(char32_t code, std::string& text);

}  // namespace strata::tokenizer
