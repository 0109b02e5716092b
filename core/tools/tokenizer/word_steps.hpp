#pragma once
#include <cstddef>
#include <string_view>
#include <vector>

#include "tools/tokenizer/file_value.hpp"
#include "tools/tokenizer/split_pattern.hpp"

namespace strata::tokenizer {

// A step of a pre-tokenizer. The steps of a tokenizer.json cut a text into words, each step the pieces of the one
// before.
struct WordStep {
  enum class Kind {
    PrefixSpace,  // puts a space in front of a piece that begins with none
    Digits,       // cuts between digits and others
    EachDigit,    // the same, and each digit is a piece
    Words         // cuts by `pattern`
  };
  Kind kind = Kind::Words;
  SplitPattern pattern = SplitPattern::Gpt2;
};

// The end of the piece that begins at `position` (< text.size()) of valid UTF-8; not for PrefixSpace.
std::size_t end_of_piece(const WordStep& step, std::string_view text, std::size_t position);

// True if, whatever stands around these two characters of a text, a word ends between them, and neither the words
// before nor those behind depend on the other side.
bool always_between_words(const std::vector<WordStep>& steps, char32_t before, char32_t behind);

// The steps of the value of `pre_tokenizer`. Throws UserError with key and rule for every other pre-tokenizer than a
// ByteLevel behind any number of Digits and of Splits by known expressions.
std::vector<WordStep> read_word_steps(const Value& pre_tokenizer);

inline constexpr const char* families =
    "Strata reads the byte-level BPE of GPT-2, GPT-NeoX, Llama 3, Qwen2 and related models";

}  // namespace strata::tokenizer
