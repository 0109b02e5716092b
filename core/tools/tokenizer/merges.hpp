#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace strata::tokenizer {

// Treatment of a byte without a token.
struct UnknownByte {
  std::optional<std::uint32_t> id;  // empty: the byte is omitted
  bool fuses = false;               // true: several such bytes in a row become one token
};

// Pairs of tokens that merge to one, with their priority. The tokens of a word begin as its bytes.
class Merges {
 public:
  struct Merge {
    std::uint32_t rank = none;  // the smallest rank merges first, and of equal ones the leftmost
    std::uint32_t id = 0;
  };
  static constexpr std::uint32_t none = UINT32_MAX;

  // Makes an empty table. `byte_ids`: tokens of the 256 bytes, or none. `count`: number of merges that will be added.
  Merges(std::vector<std::uint32_t> byte_ids, std::size_t count, UnknownByte unknown = {});
  void add(std::uint32_t left, std::uint32_t right, Merge merge);  // the last of equal pairs counts

  Merge find(std::uint32_t left, std::uint32_t right) const;
  // Appends the tokens of a word, and returns the number of omitted bytes. A word of many megabytes temporarily takes
  // up to 40 times its size.
  std::size_t apply(std::string_view word, std::vector<std::uint32_t>& ids) const;

 private:
  struct Slot {
    std::uint64_t pair = 0;
    Merge merge;  // no merge in an empty slot
  };
  std::size_t slot_of(std::uint64_t pair) const;
  template <typename Put>
  std::size_t each_part(std::string_view word, const Put& put) const;
  std::size_t apply_short(std::string_view word, std::vector<std::uint32_t>& ids) const;
  std::size_t apply_long(std::string_view word, std::vector<std::uint32_t>& ids) const;

  std::vector<std::uint32_t> byte_ids_;
  UnknownByte unknown_;
  std::vector<Slot> slots_;  // size is a power of two, at most half used
};

}  // namespace strata::tokenizer
