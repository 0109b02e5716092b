// What Hugging Face's tokenizers knows of Unicode. The tables are its own, so that tokens depend neither on the Unicode
// version of this machine's libraries nor on characters that were assigned later.
#pragma once
#include <span>

namespace strata::tokenizer {

struct CharacterRange {
  char32_t first;
  char32_t last;
};

std::span<const CharacterRange> letters();  // \p{L}
std::span<const CharacterRange> numbers();  // \p{N}
// Further digits of the pre-tokenizer Digits, whose Unicode version is newer.
std::span<const CharacterRange> newer_numbers();
// Besides letters: characters of a word, beside which an added token that is a single word is none.
std::span<const CharacterRange> other_word_characters();
// What NFC replaces, moves, or merges with what stands before it.
std::span<const CharacterRange> changed_by_normalization();

}  // namespace strata::tokenizer
