#include "tools/tokenizer/word_steps.hpp"

#include <algorithm>
#include <optional>

#include "tools/tokenizer/character_class.hpp"
#include "tools/tokenizer/utf8.hpp"

namespace strata::tokenizer {
namespace {

std::size_t end_of_digits(std::string_view text, std::size_t position, bool each) {
  const CharacterTable& table = CharacterTable::instance();
  const Character first = character_at(text, position);
  const bool digits = table.is_digit(first.code);
  position += first.bytes;
  if (digits && each) return position;
  while (position < text.size()) {
    const Character character = character_at(text, position);
    if (table.is_digit(character.code) != digits) break;
    position += character.bytes;
  }
  return position;
}

void read_byte_level(const Value& value, std::vector<WordStep>& steps) {
  if (value["add_prefix_space"].flag(true)) steps.push_back({WordStep::Kind::PrefixSpace});
  if (value["use_regex"].flag(true)) steps.push_back({WordStep::Kind::Words, SplitPattern::Gpt2});
}

// The known expressions match every character of a text, and a Split by one of them is either of these:
//  - cut into the matches: Isolated, MergedWithPrevious and MergedWithNext, and Removed with invert, where what is
//    removed is what lies between matches: nothing
//  - uncut: Contiguous
//  - without a piece: Removed
void read_split(const Value& split, std::vector<WordStep>& steps) {
  const std::string behavior = split["behavior"].text();
  const bool inverted = split["invert"].flag(false);
  const bool cuts = behavior == "Isolated" || behavior == "MergedWithPrevious" || behavior == "MergedWithNext" ||
                    (behavior == "Removed" && inverted);
  if (!cuts)
    split["behavior"].refuse(
        "it must be Isolated, MergedWithPrevious or MergedWithNext, or Removed together with \"invert\": true, so that "
        "the words are what the expression matches");
  const Value pattern = split["pattern"];
  const Value expression = pattern["Regex"];
  if (expression.is_null()) pattern.refuse(std::string("it must be a Regex that Strata supports; ") + families);
  const std::optional<SplitPattern> known = split_pattern(expression.text());
  if (!known) expression.refuse(std::string("Strata does not support this expression; ") + families);
  steps.push_back({WordStep::Kind::Words, *known});
}

void flatten(const Value& value, std::vector<Value>& parts) {
  if (value.type() != "Sequence") return parts.push_back(value);
  for (const Value& part : value["pretokenizers"].elements()) flatten(part, parts);
}

}  // namespace

std::size_t end_of_piece(const WordStep& step, std::string_view text, std::size_t position) {
  if (step.kind == WordStep::Kind::Words) return end_of_word(step.pattern, text, position);
  return end_of_digits(text, position, step.kind == WordStep::Kind::EachDigit);
}

bool always_between_words(const std::vector<WordStep>& steps, char32_t before, char32_t behind) {
  // Digits look at two neighbours only, and a prefix is put in front of a text that does not begin with a space.
  return std::ranges::all_of(steps, [&](const WordStep& step) {
    if (step.kind == WordStep::Kind::Words) return always_between_words(step.pattern, before, behind);
    return step.kind != WordStep::Kind::PrefixSpace || behind == U' ';
  });
}

std::vector<WordStep> read_word_steps(const Value& pre_tokenizer) {
  pre_tokenizer.check(!pre_tokenizer.is_null(),
                      std::string("it must be a ByteLevel, or a Sequence that ends with one; ") + families);
  std::vector<Value> parts;
  flatten(pre_tokenizer, parts);
  pre_tokenizer.check(!parts.empty() && parts.back().type() == "ByteLevel",
                      std::string("its last part must be a ByteLevel; ") + families);
  std::vector<WordStep> steps;
  for (const Value& part : parts) {
    const std::string type = part.type();
    const bool last = &part == &parts.back();
    if (type == "ByteLevel" && last) {
      read_byte_level(part, steps);
    } else if (type == "Split") {
      read_split(part, steps);
    } else if (type == "Digits") {
      steps.push_back({part["individual_digits"].flag(false) ? WordStep::Kind::EachDigit : WordStep::Kind::Digits});
    } else {
      part["type"].refuse(std::string("it must be Digits or Split, or the last part and ByteLevel; ") + families);
    }
  }
  const bool words =
      std::ranges::any_of(steps, [](const WordStep& step) { return step.kind == WordStep::Kind::Words; });
  if (!words)
    parts.back()["use_regex"].refuse(
        "it must be true where no Split cuts the text: without words BPE would run over "
        "whole documents");
  return steps;
}

}  // namespace strata::tokenizer
