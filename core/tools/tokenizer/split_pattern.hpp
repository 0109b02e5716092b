#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata::tokenizer {

// Regular expressions with which the families split text into words, each as a hand-written scanner: several times as
// fast as a compiled expression, with equal results (tests/tokenizer compares them over all characters).
enum class SplitPattern { Gpt2, Llama3, Qwen2 };

struct NamedPattern {
  SplitPattern pattern;
  std::string expression;  // expression as in tokenizer.json
};
const std::vector<NamedPattern>& split_patterns();

// Returns the pattern of an expression, if it is supported.
std::optional<SplitPattern> split_pattern(std::string_view expression);

// Returns the end of the word that begins at `position` (< text.size()) of valid UTF-8. Every character belongs to a
// word.
std::size_t end_of_word(SplitPattern pattern, std::string_view text, std::size_t position);

// True if a word always ends between these two characters, and the words on either side never depend on the other side.
bool always_between_words(SplitPattern pattern, char32_t before, char32_t behind);

}  // namespace strata::tokenizer
