#include "tools/tokenizer/split_pattern.hpp"

#include <algorithm>

#include "tools/tokenizer/character_class.hpp"
#include "tools/tokenizer/utf8.hpp"

namespace strata::tokenizer {
namespace {

// Walks over the classes of a text's characters.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : table_(CharacterTable::instance()), text_(text) {}

  bool at_end(std::size_t position) const { return position >= text_.size(); }
  char byte(std::size_t position) const { return at_end(position) ? '\0' : text_[position]; }
  // 0 at the end, which is of no class.
  std::uint8_t class_at(std::size_t position) const {
    return at_end(position) ? 0 : table_.class_of(character_at(text_, position).code);
  }
  std::size_t behind(std::size_t position) const { return position + character_at(text_, position).bytes; }

  // The end of the run of at most `most` characters of these classes from `position` on.
  std::size_t run(std::size_t position, std::uint8_t classes, std::size_t most = SIZE_MAX) const {
    for (std::size_t count = 0; count < most && !at_end(position); ++count) {
      const Character character = character_at(text_, position);
      if ((table_.class_of(character.code) & classes) == 0) break;
      position += character.bytes;
    }
    return position;
  }

  // \s+(?!\S)|\s+ at a space: all spaces, without the last one where something follows it and it is not the only one.
  // With `newlines`, \s*[\r\n]+ comes first: through the last line break among them.
  std::size_t spaces(std::size_t position, bool newlines) const {
    std::size_t end = position, last = position, line_end = 0;
    while (!at_end(end)) {
      const Character character = character_at(text_, end);
      const std::uint8_t kind = table_.class_of(character.code);
      if ((kind & Space) == 0) break;
      last = end;
      end += character.bytes;
      if ((kind & Newline) != 0) line_end = end;
    }
    if (newlines && line_end > 0) return line_end;
    return at_end(end) || last == position ? end : last;
  }

  // The length of 's, 't, 're, 've, 'm, 'll or 'd behind an apostrophe at `position`; 0 where there is none.
  std::size_t contraction(std::size_t position, bool any_case) const {
    const auto letter = [&](std::size_t index) {
      const char found = byte(position + index);
      return any_case && found >= 'A' && found <= 'Z' ? static_cast<char>(found - 'A' + 'a') : found;
    };
    const char first = letter(1), second = letter(2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
    if ((first == 'r' || first == 'v') && second == 'e') return 3;
    if (first == 'l' && second == 'l') return 3;
    // U+017F, the long s, is an s to an expression that ignores case.
    return any_case && text_.substr(position + 1, 2) == "\xc5\xbf" ? 3 : 0;
  }

 private:
  const CharacterTable& table_;
  std::string_view text_;
};

std::size_t end_of_gpt2_word(const Scanner& scanner, std::size_t position) {
  const char byte = scanner.byte(position);
  if (byte == '\'') {
    if (const std::size_t length = scanner.contraction(position, false)) return position + length;
  }
  const std::size_t begin = position + (byte == ' ' ? 1 : 0);
  const std::uint8_t kind = scanner.class_at(begin);
  if ((kind & (Letter | Number | Other)) != 0) return scanner.run(begin, kind);
  return scanner.spaces(position, false);
}

std::size_t end_of_later_word(const Scanner& scanner, std::size_t position, std::size_t digits) {
  const char byte = scanner.byte(position);
  if (byte == '\'') {
    if (const std::size_t length = scanner.contraction(position, true)) return position + length;
  }
  const std::uint8_t kind = scanner.class_at(position);
  if (kind == Letter) return scanner.run(position, Letter);
  if (kind == Number) return scanner.run(position, Number, digits);
  if ((kind & Newline) == 0) {
    const std::size_t next = scanner.behind(position);
    if (scanner.class_at(next) == Letter) return scanner.run(next, Letter);
    const std::size_t begin = byte == ' ' ? next : position;
    if (scanner.class_at(begin) == Other) return scanner.run(scanner.run(begin, Other), Newline);
  }
  return scanner.spaces(position, true);
}

std::string later_pattern(const std::string& digits) {
  return "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" + digits +
         "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
}

}  // namespace

const std::vector<NamedPattern>& split_patterns() {
  static const std::vector<NamedPattern> patterns{
      {SplitPattern::Gpt2, "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
      {SplitPattern::Llama3, later_pattern("\\p{N}{1,3}")},
      {SplitPattern::Qwen2, later_pattern("\\p{N}")}};
  return patterns;
}

std::optional<SplitPattern> split_pattern(std::string_view expression) {
  for (const NamedPattern& known : split_patterns()) {
    if (known.expression == expression) return known.pattern;
  }
  return std::nullopt;
}

std::size_t end_of_word(SplitPattern pattern, std::string_view text, std::size_t position) {
  const Scanner scanner(text);
  if (pattern == SplitPattern::Gpt2) return end_of_gpt2_word(scanner, position);
  return end_of_later_word(scanner, position, pattern == SplitPattern::Llama3 ? 3 : 1);
}

bool always_between_words(SplitPattern pattern, char32_t before, char32_t behind) {
  const CharacterTable& table = CharacterTable::instance();
  const std::uint8_t left = table.class_of(before), right = table.class_of(behind);
  // A space stands in front of a word or among spaces, never behind something else; but line breaks may end a word of
  // other signs.
  if ((left & Space) == 0 && (right & Space) != 0) {
    return (right & Newline) == 0 || left != Other || pattern == SplitPattern::Gpt2;
  }
  // Behind \s*[\r\n]+ and [^\s\p{L}\p{N}]+[\r\n]* words begin anew, at the end of a text too. GPT-2's \s+(?!\S) looks
  // at what follows.
  return pattern != SplitPattern::Gpt2 && (left & Newline) != 0 && (right & Space) == 0;
}

}  // namespace strata::tokenizer
