#pragma once
#include <cstddef>
#include <string_view>
#include <vector>

#include "tools/tokenizer/file_value.hpp"
#include "tools/tokenizer/split_pattern.hpp"

namespace strata::tokenizer {

// A step of a pre-tokenizer. The steps of a tokenizer.json split a text into words; each step splits the pieces of the
// previous one.
struct WordStep {
  enum class Kind {
    PrefixSpace,  // inserts a space before a piece that begins with none
    Digits,       // splits between digits and other characters
    EachDigit,    // as Digits, and each digit is a piece
    Words         // splits by `pattern`
  };
  Kind kind = Kind::Words;
  SplitPattern pattern = SplitPattern::Gpt2;
};

// Returns the end of the piece that begins at `position` (< text.size()) of valid UTF-8; not for PrefixSpace.
std::size_t end_of_piece(const WordStep& step, std::string_view text, std::size_t position);

// True if a word always ends between these two characters, and the words on either side never depend on the other side.
bool always_between_words(const std::vector<WordStep>& steps, char32_t before, char32_t behind);

// Reads the steps of `pre_tokenizer`. Throws UserError with key and rule for any pre-tokenizer other than a ByteLevel
// after any number of Digits and of Splits with supported expressions.
std::vector<WordStep> read_word_steps(const Value& pre_tokenizer);

inline constexpr const char* families =
    "Strata reads the byte-level BPE of GPT-2, GPT-NeoX, Llama 3, Qwen2 and related models";

}  // namespace strata::tokenizer
