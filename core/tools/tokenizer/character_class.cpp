#include "tools/tokenizer/character_class.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <vector>

#include "tools/tokenizer/unicode_ranges.hpp"

namespace strata::tokenizer {
namespace {

constexpr CharacterRange spaces[] = {{0x9, 0xd},       {0x20, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},
                                     {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f},
                                     {0x205f, 0x205f}, {0x3000, 0x3000}};

}  // namespace

const CharacterTable& CharacterTable::instance() {
  static const CharacterTable table;
  return table;
}

CharacterTable::CharacterTable() {
  std::vector<std::uint8_t> cells(characters, Other);
  const auto fill = [&](std::span<const CharacterRange> ranges, std::uint8_t value) {
    for (const CharacterRange& range : ranges) std::fill(&cells[range.first], &cells[range.last] + 1, value);
  };
  fill(letters(), Letter);
  fill(numbers(), Number);
  fill(spaces, Space);
  cells['\n'] = cells['\r'] = Space | Newline;
  const auto mark = [&](std::span<const CharacterRange> ranges, std::uint8_t value) {
    for (const CharacterRange& range : ranges) {
      for (char32_t code = range.first; code <= range.last; ++code) cells[code] |= value;
    }
  };
  mark(tokenizer::changed_by_normalization(), changed);
  mark(numbers(), digit);
  mark(newer_numbers(), digit);
  mark(letters(), of_word);
  mark(other_word_characters(), of_word);
  std::size_t used = 0;
  for (std::size_t index = 0; index < block_of_.size(); ++index) {
    const auto* begin = &cells[index * block];
    const auto same = [&](const auto& other) { return std::equal(other.begin(), other.end(), begin); };
    const auto found = std::find_if(blocks_.begin(), blocks_.begin() + used, same);
    if (found == blocks_.begin() + used) {
      strata_check(used < blocks_.size(), "CharacterTable: more blocks than room");
      std::copy(begin, begin + block, blocks_[used++].begin());
    }
    block_of_[index] = static_cast<std::uint16_t>(found - blocks_.begin());
  }
}

}  // namespace strata::tokenizer
