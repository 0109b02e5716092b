#include "tools/tokenizer/added_tokens.hpp"

#include <algorithm>
#include <utility>

#include "tools/tokenizer/character_class.hpp"
#include "tools/tokenizer/utf8.hpp"

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
  const std::string& content = token.content;
  const unsigned first = byte_of(content, 0);
  for (unsigned second = 0; second < 256; ++second) {
    if (content.size() == 1 || second == byte_of(content, 1)) may_begin_.set(first << 8 | second);
  }
  std::uint32_t node = 0;
  for (std::size_t position = 0; position < content.size(); ++position) {
    const auto next = static_cast<std::uint32_t>(token_of_.size());
    const auto [child, is_new] = children_.try_emplace(edge(node, byte_of(content, position)), next);
    if (is_new) token_of_.push_back(0);
    node = child->second;
  }
  tokens_.push_back(std::move(token));
  token_of_[node] = static_cast<std::uint32_t>(tokens_.size());
}

AddedTokenFinder::Match AddedTokenFinder::find(std::string_view text, std::size_t position) const {
  if (tokens_.empty()) return {text.size(), text.size()};
  for (; position < text.size(); ++position) {
    const unsigned first = byte_of(text, position);
    if (position + 1 < text.size() && !may_begin_[first << 8 | byte_of(text, position + 1)]) continue;
    Match longest{position, position};
    std::uint32_t node = 0;
    for (std::size_t end = position; end < text.size();) {
      const auto child = children_.find(edge(node, byte_of(text, end)));
      if (child == children_.end()) break;
      node = child->second;
      ++end;
      if (token_of_[node] != 0) longest = {position, end, &tokens_[token_of_[node] - 1]};
    }
    if (longest.token != nullptr) return longest;
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
