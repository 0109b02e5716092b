#include "tokenizer/added_tokens.hpp"

#include <algorithm>
#include <utility>

#include "tokenizer/character_class.hpp"
#include "tokenizer/utf8.hpp"

namespace strata::tokenizer {
namespace {

unsigned byte_of(std::string_view text, std::size_t position) {
  return static_cast<unsigned char>(text[position]);
}

// Where the character in front of `position` (> 0) begins.
std::size_t before(std::string_view text, std::size_t position) {
  do --position;
  while ((byte_of(text, position) & 0xc0) == 0x80);
  return position;
}

bool is_space(std::string_view text, std::size_t position) {
  return (CharacterTable::instance().class_of(character_at(text, position).code) & Space) != 0;
}

bool is_of_word(std::string_view text, std::size_t position) {
  return CharacterTable::instance().is_of_word(character_at(text, position).code);
}

}  // namespace

void AddedTokenFinder::add(AddedToken token) {
  tokens_.push_back(std::move(token));
}

void AddedTokenFinder::prepare() {
  std::ranges::stable_sort(tokens_, [](const AddedToken& left, const AddedToken& right) {
    const unsigned a = byte_of(left.content, 0), b = byte_of(right.content, 0);
    return a != b ? a < b : left.content.size() > right.content.size();
  });
  begin_of_.assign(257, 0);
  for (const AddedToken& token : tokens_) {
    const unsigned first = byte_of(token.content, 0);
    ++begin_of_[first + 1];
    for (unsigned second = 0; second < 256; ++second) {
      if (token.content.size() == 1 || second == byte_of(token.content, 1)) may_begin_.set(first << 8 | second);
    }
  }
  for (std::size_t byte = 1; byte < begin_of_.size(); ++byte) begin_of_[byte] += begin_of_[byte - 1];
}

AddedTokenFinder::Match AddedTokenFinder::find(std::string_view text, std::size_t position) const {
  if (tokens_.empty()) return {text.size(), text.size()};
  for (; position < text.size(); ++position) {
    const unsigned first = byte_of(text, position);
    if (position + 1 < text.size() && !may_begin_[first << 8 | byte_of(text, position + 1)]) continue;
    for (std::size_t index = begin_of_[first]; index < begin_of_[first + 1]; ++index) {
      const AddedToken& token = tokens_[index];
      if (text.substr(position).starts_with(token.content)) return {position, position + token.content.size(), &token};
    }
  }
  return {text.size(), text.size()};
}

bool AddedTokenFinder::is_beside_word(std::string_view text, const Match& match) {
  return (match.begin > 0 && is_of_word(text, before(text, match.begin))) ||
         (match.end < text.size() && is_of_word(text, match.end));
}

// Where the spaces in front of `end` begin, but `first` where that is in front of it.
std::size_t AddedTokenFinder::begin_of_spaces(std::string_view text, std::size_t first, std::size_t end) {
  while (end > first && is_space(text, before(text, end))) end = before(text, end);
  return std::max(end, first);
}

std::size_t AddedTokenFinder::Spaces::end_from(std::string_view text, std::size_t position) {
  if (position >= begin && position <= end) return end;
  begin = end = position;
  while (end < text.size() && is_space(text, end)) end += character_at(text, end).bytes;
  return end;
}

}  // namespace strata::tokenizer
