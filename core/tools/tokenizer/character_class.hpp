#pragma once
#include <array>
#include <cstdint>

namespace strata::tokenizer {

// Classes of characters in regular expressions: \p{L}, \p{N}, \s, [\r\n] (also in \s), and characters that are not \s,
// \p{L} or \p{N}.
enum CharacterClass : std::uint8_t { Letter = 1, Number = 2, Space = 4, Newline = 8, Other = 16 };

// Classes of all characters, and their further properties from unicode_ranges.hpp.
class CharacterTable {
 public:
  static const CharacterTable& instance();
  // Returns one class, or Space | Newline.
  std::uint8_t class_of(char32_t code) const { return cell(code) & 0x1f; }
  bool changed_by_normalization(char32_t code) const { return (cell(code) & changed) != 0; }
  bool is_digit(char32_t code) const { return (cell(code) & digit) != 0; }      // as the pre-tokenizer Digits
  bool is_of_word(char32_t code) const { return (cell(code) & of_word) != 0; }  // for added single-word tokens

 private:
  static constexpr std::uint8_t changed = 0x20, digit = 0x40, of_word = 0x80;
  static constexpr char32_t characters = 0x110000, block = 0x100;

  CharacterTable();
  std::uint8_t cell(char32_t code) const { return blocks_[block_of_[code / block]][code % block]; }

  std::array<std::uint16_t, characters / block> block_of_{};
  std::array<std::array<std::uint8_t, block>, 512> blocks_{};  // equal blocks are stored once
};

}  // namespace strata::tokenizer
