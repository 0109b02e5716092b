#include "tools/tokenizer/split_pattern.hpp"

#include "catch.hpp"
#include "tools/tokenizer/utf8.hpp"

using namespace strata::tokenizer;

namespace {

std::vector<std::string> words(SplitPattern pattern, const std::string& text) {
  std::vector<std::string> found;
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t end = end_of_word(pattern, text, position);
    REQUIRE(end > position);
    found.push_back(text.substr(position, end - position));
    position = end;
  }
  return found;
}

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("GPT-2's words") {
  const auto of = [](const std::string& text) { return words(SplitPattern::Gpt2, text); };
  CHECK(of("Hello world 12345!") == Words{"Hello", " world", " 12345", "!"});
  CHECK(of("it's IT'S we'll") == Words{"it", "'s", " IT", "'", "S", " we", "'ll"});
  CHECK(of("a   b \n") == Words{"a", "  ", " b", " \n"});
  CHECK(of("a\tb\n\nc") == Words{"a", "\t", "b", "\n", "\n", "c"});
  CHECK(of(".\n ?!") == Words{".", "\n", " ?!"});
  CHECK(of("\u00e9t\u00e9\u3000\u4e16\u754c\u0661") == Words{"\u00e9t\u00e9", "\u3000", "\u4e16\u754c", "\u0661"});
}

TEST_CASE("Llama 3's words") {
  const auto of = [](const std::string& text) { return words(SplitPattern::Llama3, text); };
  CHECK(of("Hello world 12345!") == Words{"Hello", " world", " ", "123", "45", "!"});
  CHECK(of("IT'S it'\u017f we'LLx") == Words{"IT", "'S", " it", "'\u017f", " we", "'LL", "x"});
  CHECK(of("(a\tb \n\n  c") == Words{"(a", "\tb", " \n\n", " ", " c"});
  CHECK(of("x();\r\n\r\n  y") == Words{"x", "();\r\n\r\n", " ", " y"});
  CHECK(of("  \n \t") == Words{"  \n", " \t"});
}

TEST_CASE("Qwen2's words have one digit") {
  CHECK(words(SplitPattern::Qwen2, "a 123") == Words{"a", " ", "1", "2", "3"});
}

TEST_CASE("an expression is found by its text only") {
  for (const NamedPattern& known : split_patterns()) CHECK(split_pattern(known.expression) == known.pattern);
  CHECK(!split_pattern("\\w+"));
}

TEST_CASE("where words always end, the words of both sides are those of the whole") {
  const std::u32string characters = U"aZ9\u00e9\u4e16'.,\u3002 \t\n\r\u00a0\u3000";
  const char* const sides[] = {"", "a", " ", "\n", ".", "1", "  ", " \n", "'s", "x.", "\n\n", ".\n", "ab 12"};
  for (const NamedPattern& known : split_patterns()) {
    const SplitPattern pattern = known.pattern;
    const auto text_of = [](char32_t code) {
      std::string text;
      append_utf8(code, text);
      return text;
    };
    int cuts = 0;
    for (const char32_t before : characters) {
      for (const char32_t behind : characters) {
        if (!always_between_words(pattern, before, behind)) continue;
        ++cuts;
        for (const std::string left_side : sides) {
          for (const std::string right_side : sides) {
            const std::string left = left_side + text_of(before), right = text_of(behind) + right_side;
            Words both = words(pattern, left);
            for (const std::string& word : words(pattern, right)) both.push_back(word);
            INFO(known.expression << ": " << left << "|" << right);
            CHECK(words(pattern, left + right) == both);
          }
        }
      }
    }
    CHECK(cuts > 40);
  }
}
