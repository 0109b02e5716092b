#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata::tokenizer {

// The regular expressions by which the families cut text into words, each a scanner by hand: several times as fast as a
// compiled expression, and equal to it (tests/tokenizer compares them over all characters).
enum class SplitPattern { Gpt2, Llama3, Qwen2 };

struct NamedPattern {
  SplitPattern pattern;
  std::string expression;  // as tokenizer.json has it
};
const std::vector<NamedPattern>& split_patterns();

// The pattern of an expression, if it is one of these.
std::optional<SplitPattern> split_pattern(std::string_view expression);

// The end of the word that begins at `position` (< text.size()) of valid UTF-8. Every character belongs to a word.
std::size_t end_of_word(SplitPattern pattern, std::string_view text, std::size_t position);

// Whether, whatever stands around these two characters of a text, a word ends between them, and neither the words
// before nor those behind depend on the other side.
bool always_between_words(SplitPattern pattern, char32_t before, char32_t behind);

}  // namespace strata::tokenizer
