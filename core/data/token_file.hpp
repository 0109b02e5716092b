#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "data/mapped_file.hpp"
#include "data/token_type.hpp"

namespace strata::data {

// A file that from some byte on is token ids, back to back and little-endian, to its end. Mapped into memory; ranks of
// one machine share its pages. [any rank]
class TokenFile {
 public:
  // `header_bytes`: before the first token; a multiple of the type's size. Throws UserError "PATH: ..." when there is
  // no token, or no whole number of them.
  TokenFile(MappedFile file, TokenType type, std::uint64_t header_bytes = 0);

  const std::string& path() const { return file_.path(); }
  TokenType type() const { return type_; }
  std::int64_t token_count() const { return token_count_; }

  // Widens tokens [first, first + count) into `destination`. Throws EnvironmentError when the file was cut after it was
  // opened.
  void copy(std::int64_t first, std::int64_t count, std::int64_t* destination) const;

  // Calls visit(typed tokens, how many, index of the first) for one block of tokens [begin, end) after another. Reads
  // and does not touch the mapping, so that a look at the whole file does not make it part of this process's resident
  // memory.
  template <typename Visit>
  void scan(std::int64_t begin, std::int64_t end, Visit visit) const {
    with_token_type(type_, [&](auto example) {
      std::vector<decltype(example)> block(scan_bytes / sizeof example);
      for (std::int64_t first = begin; first < end; first += std::ssize(block)) {
        const auto count = static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(block), end - first));
        file_.file().read_at(header_bytes_ + static_cast<std::uint64_t>(first) * sizeof example, block.data(),
                             count * sizeof example);
        visit(block.data(), count, first);
      }
    });
  }

 private:
  static constexpr std::size_t scan_bytes = std::size_t{1} << 20;

  MappedFile file_;
  TokenType type_;
  std::uint64_t header_bytes_;
  std::int64_t token_count_ = 0;
};

}  // namespace strata::data
