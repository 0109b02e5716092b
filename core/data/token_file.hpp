// defines: TokenWidth, parse_token_width, token_width_of, to_string, TokenStatistics, TokenFile
// Token ids as nanoGPT keeps them: raw little-endian unsigned integers, 2 or 4 bytes each, back to back, no header.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "data/file.hpp"

namespace strata::data {

enum class TokenWidth { U16 = 2, U32 = 4 };  // the value is the bytes of one token

// "u16" or "u32"; throws UserError otherwise.
TokenWidth parse_token_width(const std::string& text);
// What a file's name says: NAME.u32 and NAME.u32.bin are u32, every other name is u16 (nanoGPT's own).
TokenWidth token_width_of(const std::string& path);
const char* to_string(TokenWidth width);

struct TokenStatistics {
  std::uint32_t smallest = 0;  // ids
  std::uint32_t largest = 0;
  std::int64_t distinct = 0;
  // Of the id frequencies, nats a token: the loss of the best model that looks at no context.
  double unigram_entropy = 0.0;
};

// A token file, mapped into memory. Ranks of one machine share its pages. [any rank]
class TokenFile {
 public:
  // `width` empty: token_width_of(path). Throws UserError "PATH: ..." when there is none, it is not a regular file, is
  // empty, its size is not a whole number of tokens, or it starts with llm.c's header.
  explicit TokenFile(const std::string& path, std::optional<TokenWidth> width = {});
  TokenFile(TokenFile&& other) noexcept;
  TokenFile& operator=(TokenFile&&) = delete;
  ~TokenFile();

  const std::string& path() const { return file_.path(); }
  TokenWidth width() const { return width_; }
  std::int64_t token_count() const { return token_count_; }

  // floor((token_count - 1) / seq_len): how many samples of seq_len inputs, each followed by one more token as the last
  // target. Throws UserError when there is not one.
  std::int64_t sample_count(std::int64_t seq_len) const;

  // Widens tokens [first, first + count) into `destination`. Throws EnvironmentError when the file was cut after it was
  // opened.
  void copy(std::int64_t first, std::int64_t count, std::int64_t* destination) const;

  // Reads the whole file (gigabytes a second from the page cache): one rank of a run does it. Throws UserError that
  // names the first token whose id is not below `vocabulary`.
  void check_vocabulary(std::int64_t vocabulary) const;
  // Reads the whole file. `progress(tokens so far)` is called now and then.
  TokenStatistics statistics(const std::function<void(std::int64_t)>& progress = {}) const;

 private:
  // Calls visit(typed tokens, how many, index of the first) for one block after another.
  template <typename Visit>
  void scan(Visit visit) const;
  template <typename Token, typename Visit>
  void scan_as(Visit visit) const;

  InputFile file_;
  TokenWidth width_;
  std::int64_t token_count_ = 0;
  const void* mapping_ = nullptr;
};

}  // namespace strata::data
