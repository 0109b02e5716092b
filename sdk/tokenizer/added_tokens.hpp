#pragma once
#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::tokenizer {

// Finds added tokens in text: the leftmost, and of those that begin there the longest; then on behind it.
class AddedTokenFinder {
 public:
  void add(const std::string& content, std::uint32_t id);  // of at least one byte
  void prepare();                                          // after the last add()

  struct Match {
    std::size_t begin = 0, end = 0;
    std::uint32_t id = 0;
  };
  // The first match at or behind `position`; begin is text.size() where there is none.
  Match find(std::string_view text, std::size_t position) const;
  bool empty() const { return tokens_.empty(); }

 private:
  struct Token {
    std::string content;
    std::uint32_t id;
  };
  std::vector<Token> tokens_;          // by their first byte, the longest first
  std::vector<std::size_t> begin_of_;  // by first byte, and the end
  std::bitset<65536> may_begin_;       // by the first two bytes
};

}  // namespace strata::tokenizer
