#pragma once
#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace strata::tokenizer {

// A token that a tokenizer.json adds to its vocabulary, matched in the text itself.
struct AddedToken {
  std::string content;
  std::uint32_t id = 0;
  bool normalized = false;    // matched in the normalized text
  bool single_word = false;   // not matched next to a character of a word
  bool strips_left = false;   // takes preceding spaces
  bool strips_right = false;  // takes following spaces
};

// Matches added tokens in text: the leftmost, the longest of those that begin there, then further ones after it.
class AddedTokenFinder {
 public:
  void add(AddedToken token);  // the content has at least one byte, and differs from all others

  struct Match {
    std::size_t begin = 0, end = 0;
    const AddedToken* token = nullptr;  // null: no match
  };
  // Returns the first match at or after `position`, by content alone; begin is text.size() without one.
  Match find(std::string_view text, std::size_t position) const;

  // Calls `between` with each part of the text outside added tokens, and `found` with each added token, in order.
  template <typename Between, typename Found>
  void split(std::string_view text, const Between& between, const Found& found) const {
    Spaces behind;
    std::size_t done = 0;
    for (Match match = find(text, 0); match.token != nullptr; match = find(text, match.end)) {
      if (match.token->single_word && is_beside_word(text, match)) continue;
      const std::size_t begin = match.token->strips_left ? begin_of_spaces(text, done, match.begin) : match.begin;
      const std::size_t end = match.token->strips_right ? behind.end_from(text, match.end) : match.end;
      if (begin > done) between(text.substr(done, begin - done));
      if (end > begin) found(*match.token);  // otherwise the previous token took all of it
      done = end;
    }
    if (done < text.size()) between(text.substr(done));
  }

 private:
  // Returns the spaces after a match; cached, so that many matches in a row of spaces stay fast.
  struct Spaces {
    std::size_t begin = 0, end = 0;
    std::size_t end_from(std::string_view text, std::size_t position);
  };
  static bool is_beside_word(std::string_view text, const Match& match);
  static std::size_t begin_of_spaces(std::string_view text, std::size_t first, std::size_t end);

  // Tree of the contents: the next node by node and byte, and the token that ends at a node.
  static std::uint64_t edge(std::uint32_t node, unsigned byte) { return std::uint64_t{node} << 8 | byte; }
  std::vector<AddedToken> tokens_;
  std::unordered_map<std::uint64_t, std::uint32_t> children_;
  std::vector<std::uint32_t> token_of_{0};  // by node: index of a token plus 1; 0: none
  std::bitset<65536> may_begin_;            // by the first two bytes
};

}  // namespace strata::tokenizer
