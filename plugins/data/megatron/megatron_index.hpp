#pragma once
#include <strata/toolbox/token_files.hpp>

#include <cstdint>
#include <cstring>
#include <string>

#include "mapped_file.hpp"

namespace strata::megatron {

// The .idx file of Megatron-LM's and GPT-NeoX's data sets, little-endian: the 9 bytes "MMIDIDX\0\0", u64 version 1, u8
// code of the tokens' type, u64 sequences S, u64 boundaries D, then i32 lengths[S] in tokens, i64 offsets[S] in bytes
// of the .bin file, i64 boundaries[D] (documents as sequence numbers: 0, ..., S) and, in some, i8 modes[S]. A GPT data
// set samples sequences and ignores the boundaries. The file is mapped into memory, and checked completely on opening.
// [any rank]
class MegatronIndex {
 public:
  // Throws UserError "PATH: ..." for a file of another format, a truncated one, unknown or floating-point types,
  // numbers that contradict each other, and sequences that are not contiguous.
  explicit MegatronIndex(const std::string& path);

  const std::string& path() const { return file_.path(); }
  toolbox::TokenType type() const { return type_; }
  std::int64_t sequences() const { return sequences_; }
  std::int64_t documents() const { return documents_; }
  std::int64_t token_count() const { return token_count_; }  // of all sequences

  // Of sequence i. Call check_not_cut() before a series of calls.
  std::int64_t length(std::int64_t i) const { return read<std::int32_t>(header_bytes + 4 * i); }
  std::int64_t first_token(std::int64_t i) const {
    return read<std::int64_t>(header_bytes + 4 * sequences_ + 8 * i) / token_bytes_;
  }
  void check_not_cut() const { file_.check_not_cut(); }

 private:
  static constexpr std::int64_t header_bytes = 34;

  // The arrays begin at byte 34, so no number in them is aligned.
  template <typename Integer>
  Integer read(std::int64_t offset) const {
    Integer value;
    std::memcpy(&value, file_.data() + offset, sizeof value);
    return value;
  }
  [[noreturn]] void refuse(const std::string& why) const;
  void read_header();
  void check_sequences();
  void check_boundaries(std::int64_t count);

  MappedFile file_;
  toolbox::TokenType type_ = toolbox::TokenType::U16;
  std::int64_t token_bytes_ = 2;
  std::int64_t sequences_ = 0;
  std::int64_t documents_ = 0;
  std::int64_t token_count_ = 0;
};

}  // namespace strata::megatron
