#include "megatron_index.hpp"

#include <strata/format.hpp>

#include <algorithm>
#include <limits>

namespace strata::megatron {
namespace {

constexpr char index_magic[] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};

toolbox::TokenType type_of_code(const std::string& path, int code) {
  switch (code) {
    case 1:
      return toolbox::TokenType::U8;
    case 2:
      return toolbox::TokenType::I8;
    case 3:
      return toolbox::TokenType::I16;
    case 4:
      return toolbox::TokenType::I32;
    case 5:
      return toolbox::TokenType::I64;
    case 8:
      return toolbox::TokenType::U16;
    case 6:
    case 7:
      throw UserError(Place{path},
                      "its type code is {}, a floating-point type; tokens are integers (codes 1, 2, 3, 4, 5 and 8)",
                      code);
    default:
      throw UserError(Place{path},
                      "its type code is {}, which is unknown (known: 1, 2, 3, 4, 5 and 8); the file may be damaged",
                      code);
  }
}

}  // namespace

MegatronIndex::MegatronIndex(const std::string& path) : file_(path) {
  read_header();
  check_sequences();
}

void MegatronIndex::refuse(const std::string& why) const {
  throw UserError(Place{path()}, why);
}

void MegatronIndex::read_header() {
  const auto size = static_cast<std::int64_t>(file_.size());
  if (size < header_bytes) {
    refuse(format("holds {} bytes, but the header of an .idx file alone has 34; it may be truncated", size));
  }
  if (!std::equal(std::begin(index_magic), std::end(index_magic), file_.data())) {
    refuse(
        "does not start with MMIDIDX, as Megatron's .idx files do; it may be another file, or of fairseq's older "
        "format");
  }
  const auto version = read<std::uint64_t>(9);
  if (version != 1) refuse(format("has version {}; only version 1 is supported", version));
  type_ = type_of_code(path(), read<std::uint8_t>(17));
  token_bytes_ = static_cast<std::int64_t>(toolbox::bytes_of(type_));

  // Unsigned, and compared with the rest of the file, so that no sum can overflow.
  const auto sequences = read<std::uint64_t>(18), boundaries = read<std::uint64_t>(26);
  const auto body = static_cast<std::uint64_t>(size - header_bytes);
  const bool fits = sequences <= body / 12 && boundaries <= (body - 12 * sequences) / 8;
  const std::uint64_t rest = fits ? body - 12 * sequences - 8 * boundaries : 0;
  if (!fits || (rest != 0 && rest != sequences)) {
    refuse(format("holds {} bytes, which does not match its {} sequences and {} document boundaries{}", size, sequences,
                  boundaries, fits ? "" : "; it may be truncated or damaged"));
  }
  if (sequences == 0) refuse("holds no sequences");
  sequences_ = static_cast<std::int64_t>(sequences);
  check_boundaries(static_cast<std::int64_t>(boundaries));
}

void MegatronIndex::check_sequences() {
  const std::int64_t most =
      std::numeric_limits<std::int64_t>::max() / token_bytes_ - std::numeric_limits<std::int32_t>::max();
  for (std::int64_t i = 0; i < sequences_; ++i) {
    const std::int64_t tokens = length(i);
    const auto offset = read<std::int64_t>(header_bytes + 4 * sequences_ + 8 * i);
    if (tokens < 0) refuse(format("sequence {} has {} tokens; the file may be damaged", i, tokens));
    if (offset != token_count_ * token_bytes_) {
      refuse(
          format("sequence {} begins at byte {} of the .bin file, but the previous one ends at byte {}; sequences must "
                 "be contiguous",
                 i, offset, token_count_ * token_bytes_));
    }
    token_count_ += tokens;
    if (token_count_ > most) refuse("its sequences hold more tokens than a file can");
  }
  if (token_count_ == 0) refuse(format("its {} sequences hold no tokens", sequences_));
}

void MegatronIndex::check_boundaries(std::int64_t count) {
  const std::int64_t begin = header_bytes + 12 * sequences_;
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto boundary = read<std::int64_t>(begin + 8 * i);
    if (i == 0 ? boundary != 0 : boundary < last || boundary > sequences_) {
      refuse(format(
          "document boundary {} is sequence {}; the boundaries must ascend from 0 to the number of sequences, {}", i,
          boundary, sequences_));
    }
    last = boundary;
  }
  if (last != sequences_) {
    refuse(format("its documents end at sequence {}, but it has {} sequences", last, sequences_));
  }
  documents_ = count - 1;
}

}  // namespace strata::megatron
