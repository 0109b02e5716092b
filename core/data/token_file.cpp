#include "data/token_file.hpp"

#include <bit>
#include <utility>

namespace strata::data {

static_assert(std::endian::native == std::endian::little, "token files are read as they lie on the disk");

TokenFile::TokenFile(MappedFile file, TokenType type, std::uint64_t header_bytes)
    : file_(std::move(file)), type_(type), header_bytes_(header_bytes) {
  const std::size_t width = bytes_of(type);
  strata_check(header_bytes <= file_.size() && header_bytes % width == 0, "TokenFile: a header outside the file");
  const std::uint64_t bytes = file_.size() - header_bytes;
  if (bytes == 0) {
    throw UserError(Place{path()}, std::string(header_bytes == 0 ? "is empty" : "holds no tokens") +
                                       "; a token file holds at least seq_len + 1 tokens");
  }
  if (bytes % width != 0) {
    throw UserError(Place{path()}, "holds " + std::to_string(bytes) + " bytes of tokens, which is no whole number of " +
                                       to_string(type) + " tokens (" + std::to_string(width) +
                                       " bytes each); is it cut off, or of another type?");
  }
  token_count_ = static_cast<std::int64_t>(bytes / width);
}

void TokenFile::copy(std::int64_t first, std::int64_t count, std::int64_t* destination) const {
  strata_check(first >= 0 && count >= 0 && first <= token_count_ - count, "TokenFile::copy: a range outside the file");
  file_.check_not_cut();
  with_token_type(type_, [&](auto example) {
    const auto* tokens = reinterpret_cast<const decltype(example)*>(file_.data() + header_bytes_) + first;
    std::copy(tokens, tokens + count, destination);
  });
}

}  // namespace strata::data
