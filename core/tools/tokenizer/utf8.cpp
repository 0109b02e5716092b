#include "tools/tokenizer/utf8.hpp"

#include <cstdint>
#include <cstring>

namespace strata::tokenizer {
namespace {

std::size_t end_of_ascii(std::string_view text, std::size_t position) {
  while (position + 8 <= text.size()) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, text.data() + position, 8);
    if ((bytes & 0x8080808080808080u) != 0) break;
    position += 8;
  }
  while (position < text.size() && static_cast<unsigned char>(text[position]) < 0x80) ++position;
  return position;
}

// Of the first broken sequence at or behind `position`, or the end.
std::size_t end_of_valid(std::string_view text, std::size_t position) {
  for (position = end_of_ascii(text, position); position < text.size(); position = end_of_ascii(text, position)) {
    const Sequence sequence = sequence_at(text, position);
    if (!sequence.valid) break;
    position += sequence.bytes;
  }
  return position;
}

}  // namespace

Sequence sequence_at(std::string_view text, std::size_t position) {
  const auto byte = [&](std::size_t index) {
    return position + index < text.size() ? static_cast<unsigned char>(text[position + index]) : 0u;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return {1, true};
  if (first < 0xc2 || first > 0xf4) return {1, false};
  const std::size_t wanted = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  // No character has two spellings (0xe0, 0xf0), none is half of a UTF-16 pair (0xed) or above U+10FFFF (0xf4).
  const unsigned lowest = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned highest = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < lowest || byte(1) > highest) return {1, false};
  for (std::size_t index = 2; index < wanted; ++index) {
    if (byte(index) < 0x80 || byte(index) > 0xbf) return {index, false};
  }
  return {wanted, true};
}

std::string_view valid_utf8(std::string_view text, std::string& repaired) {
  std::size_t end = end_of_valid(text, 0);
  if (end == text.size()) return text;
  repaired.clear();
  for (std::size_t position = 0;; end = end_of_valid(text, position)) {
    repaired.append(text.substr(position, end - position));
    if (end == text.size()) return repaired;
    repaired += "\xef\xbf\xbd";
    position = end + sequence_at(text, end).bytes;
  }
}

void append_utf8(char32_t code, std::string& text) {
  const auto add = [&](char32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xc0 | code >> 6);
    add(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    add(0xe0 | code >> 12);
    add(0x80 | (code >> 6 & 0x3f));
    add(0x80 | (code & 0x3f));
  } else {
    add(0xf0 | code >> 18);
    add(0x80 | (code >> 12 & 0x3f));
    add(0x80 | (code >> 6 & 0x3f));
    add(0x80 | (code & 0x3f));
  }
}

}  // namespace strata::tokenizer
