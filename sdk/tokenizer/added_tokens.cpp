#include "tokenizer/added_tokens.hpp"

#include <algorithm>

namespace strata::tokenizer {
namespace {

unsigned byte_of(std::string_view text, std::size_t position) {
  return static_cast<unsigned char>(text[position]);
}

}  // namespace

void AddedTokenFinder::add(const std::string& content, std::uint32_t id) {
  tokens_.push_back({content, id});
}

void AddedTokenFinder::prepare() {
  std::stable_sort(tokens_.begin(), tokens_.end(), [](const Token& left, const Token& right) {
    const unsigned a = byte_of(left.content, 0), b = byte_of(right.content, 0);
    return a != b ? a < b : left.content.size() > right.content.size();
  });
  begin_of_.assign(257, 0);
  for (const Token& token : tokens_) {
    const unsigned first = byte_of(token.content, 0);
    ++begin_of_[first + 1];
    for (unsigned second = 0; second < 256; ++second) {
      if (token.content.size() == 1 || second == byte_of(token.content, 1)) may_begin_.set(first << 8 | second);
    }
  }
  for (std::size_t byte = 1; byte < begin_of_.size(); ++byte) begin_of_[byte] += begin_of_[byte - 1];
}

AddedTokenFinder::Match AddedTokenFinder::find(std::string_view text, std::size_t position) const {
  if (tokens_.empty()) return {text.size(), text.size(), 0};
  for (; position < text.size(); ++position) {
    const unsigned first = byte_of(text, position);
    if (position + 1 < text.size() && !may_begin_[first << 8 | byte_of(text, position + 1)]) continue;
    for (std::size_t index = begin_of_[first]; index < begin_of_[first + 1]; ++index) {
      const Token& token = tokens_[index];
      if (text.substr(position).starts_with(token.content)) {
        return {position, position + token.content.size(), token.id};
      }
    }
  }
  return {text.size(), text.size(), 0};
}

}  // namespace strata::tokenizer
