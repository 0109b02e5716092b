#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace strata::tokenizer {

// What a byte without a token becomes.
struct UnknownByte {
  std::optional<std::uint32_t> id;  // none: nothing
  bool fuses = false;               // several such bytes in a row become one
};

// Which two tokens become one, and which pair goes first. The tokens of a word begin as its bytes.
class Merges {
 public:
  struct Merge {
    std::uint32_t rank = none;  // the smallest goes first, and the leftmost of equal ones
    std::uint32_t id = 0;
  };
  static constexpr std::uint32_t none = UINT32_MAX;

  // `byte_ids`: the tokens of the 256 bytes, or none. `count`: of the merges that are going to be added.
  Merges(std::vector<std::uint32_t> byte_ids, std::size_t count, UnknownByte unknown = {});
  void add(std::uint32_t left, std::uint32_t right, Merge merge);  // the last of equal pairs counts

  Merge find(std::uint32_t left, std::uint32_t right) const;
  // Appends the tokens of a word, and returns how many of its bytes are left out of them. A word of many megabytes
  // takes up to 40 times its size meanwhile.
  std::size_t apply(std::string_view word, std::vector<std::uint32_t>& ids) const;

 private:
  struct Slot {
    std::uint64_t pair = 0;
    Merge merge;  // none in an empty slot
  };
  std::size_t slot_of(std::uint64_t pair) const;
  template <typename Put>
  std::size_t each_part(std::string_view word, const Put& put) const;
  std::size_t apply_short(std::string_view word, std::vector<std::uint32_t>& ids) const;
  std::size_t apply_long(std::string_view word, std::vector<std::uint32_t>& ids) const;

  std::vector<std::uint32_t> byte_ids_;
  UnknownByte unknown_;
  std::vector<Slot> slots_;  // a power of two, at most half of them used
};

}  // namespace strata::tokenizer
