#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace strata::tokenizer {

// Cache of the tokens of words, for one thread. Emptied when it is full.
class WordCache {
 public:
  static constexpr std::size_t longest_word = 128;

  WordCache();
  // Returns the tokens of a word of 1 to longest_word bytes, valid until the next insert(); empty if unknown.
  std::span<const std::uint32_t> find(std::string_view word) const;
  void insert(std::string_view word, std::span<const std::uint32_t> ids);

 private:
  // A word of up to 16 bytes is its own key, padded with zeros; for a longer one `first` is a hash and `second` its
  // place in words_.
  struct Key {
    std::uint64_t first = 0, second = 0;
    std::uint64_t hash = 0;
  };
  struct Slot {
    std::uint64_t first = 0, second = 0;
    std::uint32_t ids = 0;  // the token itself if there is only one; otherwise the place in ids_
    std::uint16_t count = 0;
    std::uint16_t bytes = 0;  // 0: empty
  };

  static Key key_of(std::string_view word);
  bool is(const Slot& slot, const Key& key, std::string_view word) const;
  void forget();

  std::vector<Slot> slots_;
  std::size_t used_ = 0;
  std::vector<std::uint32_t> ids_;
  std::vector<char> words_;
};

}  // namespace strata::tokenizer
