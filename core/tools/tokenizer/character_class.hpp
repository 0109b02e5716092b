#pragma once
#include <array>
#include <cstdint>

namespace strata::tokenizer {

// As regular expressions class characters: \p{L}, \p{N}, \s, [\r\n] (which are \s too), and no \s, \p{L} or \p{N}.
enum CharacterClass : std::uint8_t { Letter = 1, Number = 2, Space = 4, Newline = 8, Other = 16 };

// The classes of all characters and what else unicode_ranges.hpp says of them.
class CharacterTable {
 public:
  static const CharacterTable& instance();
  // One of CharacterClass, or Space | Newline.
  std::uint8_t class_of(char32_t code) const { return cell(code) & 0x1f; }
  bool changed_by_normalization(char32_t code) const { return (cell(code) & changed) != 0; }
  bool is_digit(char32_t code) const { return (cell(code) & digit) != 0; }      // to the pre-tokenizer Digits
  bool is_of_word(char32_t code) const { return (cell(code) & of_word) != 0; }  // to added tokens that are single words

 private:
  static constexpr std::uint8_t changed = 0x20, digit = 0x40, of_word = 0x80;
  static constexpr char32_t characters = 0x110000, block = 0x100;

  CharacterTable();
  std::uint8_t cell(char32_t code) const { return blocks_[block_of_[code / block]][code % block]; }

  std::array<std::uint16_t, characters / block> block_of_{};
  std::array<std::array<std::uint8_t, block>, 512> blocks_{};  // equal ones once
};

}  // namespace strata::tokenizer
