// Unicode properties as used by Hugging Face's tokenizers. The tables are the library's own, so that tokens depend
// neither on the Unicode version of this machine's libraries nor on characters assigned later.
#pragma once
#include <span>

namespace strata::tokenizer {

struct CharacterRange {
  char32_t first;
  char32_t last;
};

std::span<const CharacterRange> letters();  // \p{L}
std::span<const CharacterRange> numbers();  // \p{N}
// Returns further digits of the pre-tokenizer Digits, which uses a newer Unicode version.
std::span<const CharacterRange> newer_numbers();
// Returns characters of a word besides letters; next to them an added single-word token does not match.
std::span<const CharacterRange> other_word_characters();
// Returns characters that NFC replaces, moves, or merges with the preceding ones.
std::span<const CharacterRange> changed_by_normalization();

}  // namespace strata::tokenizer
