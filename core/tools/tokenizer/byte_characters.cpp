#include "tools/tokenizer/byte_characters.hpp"

#include <array>

#include "tools/tokenizer/utf8.hpp"

namespace strata::tokenizer {
namespace {

constexpr bool is_printable(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
}

constexpr std::array<char32_t, 256> make_characters() {
  std::array<char32_t, 256> characters{};
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) characters[byte] = is_printable(byte) ? byte : next++;
  return characters;
}

constexpr std::array<char32_t, 256> characters = make_characters();

std::optional<char> byte_of_character(char32_t code) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (characters[byte] == code) return static_cast<char>(static_cast<unsigned char>(byte));
  }
  return std::nullopt;
}

}  // namespace

char32_t character_of_byte(unsigned char byte) {
  return characters[byte];
}

std::optional<std::string> bytes_of_token(std::string_view token) {
  static const auto bytes = [] {
    std::array<std::optional<char>, 0x180> table;
    for (char32_t code = 0; code < table.size(); ++code) table[code] = byte_of_character(code);
    return table;
  }();
  std::string text;
  for (std::size_t position = 0; position < token.size();) {
    const Character character = character_at(token, position);
    if (character.code >= bytes.size() || !bytes[character.code]) return std::nullopt;
    text += *bytes[character.code];
    position += character.bytes;
  }
  return text;
}

}  // namespace strata::tokenizer
