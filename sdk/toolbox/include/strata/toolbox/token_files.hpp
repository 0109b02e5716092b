// Data sets of integer files, with or without a header. A plugin defines where each file's tokens begin and their type:
//   return std::make_unique<TokenFiles>(open_files(path, [](InputFile file) {
//     return TokenFile(std::move(file), TokenType::U16);
//   }));
#pragma once
#include <strata/data_source.hpp>
#include <strata/input_file.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata::toolbox {

// Type of a token id in a file. Ids are never negative; the signed types exist because some files use them.
enum class TokenType { U8, I8, U16, I16, U32, I32, I64 };

const char* to_string(TokenType type);  // "u16"
std::size_t bytes_of(TokenType type);

// A file of contiguous little-endian token ids, after an optional header. [any rank]
class TokenFile {
 public:
  // Takes a file. `header_bytes`: size of the header. Throws UserError "PATH: ..." if the file has no tokens, or not a
  // whole number of them, or has no header and is of another format (<strata/toolbox/foreign_files.hpp>).
  TokenFile(InputFile file, TokenType type, std::uint64_t header_bytes = 0);

  const std::string& path() const { return file_.path(); }
  TokenType type() const { return type_; }
  std::int64_t token_count() const { return token_count_; }
  // Writes tokens [first, first + count), which must be in the file, to `destination`. Blocks. Throws EnvironmentError
  // if the disk fails or the file was truncated after it was opened.
  void copy(std::int64_t first, std::int64_t count, std::int64_t* destination) const;

 private:
  InputFile file_;
  TokenType type_;
  std::uint64_t header_bytes_;
  std::int64_t token_count_ = 0;
};

// The concatenated tokens of several files.
class TokenFiles : public DataSet {
 public:
  // Takes at least one file, and no masks or one for each file. A mask has one byte for each token of its file: 1 for a
  // target, 0 for a token that the loss ignores. Throws UserError if the types of the files differ, or a mask does not
  // fit.
  explicit TokenFiles(std::vector<TokenFile> files, std::vector<TokenFile> masks = {});
  std::vector<TokenFileInfo> files() const override;
  void copy(std::int64_t first, std::int64_t count, std::int64_t* destination) const override;
  bool has_mask() const override { return !masks_.empty(); }
  void copy_mask(std::int64_t first, std::int64_t count, std::uint8_t* is_target) const override;

 private:
  // Calls call(file, first, count, behind) for the part of each file in a range of the row; `behind`: tokens before it.
  template <typename Call>
  void in_files(std::int64_t first, std::int64_t count, Call call) const;

  std::vector<TokenFile> files_, masks_;
  std::vector<std::int64_t> first_;  // position of each file's first token in the row, and the row's length
};

// True if `path` is a pattern like fineweb_train_*.bin, and no file has exactly this name.
bool is_pattern(const std::string& path);
// Returns the files that match a pattern, sorted by the bytes of their names; `path` itself if it is not a pattern.
// Throws UserError if none match.
std::vector<std::string> files_matching(const std::string& path);
// Opens each file of files_matching(path).
std::vector<TokenFile> open_files(const std::string& path, const std::function<TokenFile(InputFile)>& open);

// Writes `header` and the tokens to a file, replacing an existing one. Throws UserError for an id that the type cannot
// store or a path that cannot be written, EnvironmentError if the disk fails.
void write_token_file(const std::string& path, TokenType type, const std::vector<std::int64_t>& tokens,
                      std::string_view header = {});

// A plugin's own order over consecutive samples: sample i is tokens [i * seq_len, (i + 1) * seq_len + 1) of the row;
// the rest at its end is not used.
class RowSamples final : public Samples {
 public:
  // Returns the number of samples in the row: floor((tokens - 1) / seq_len). Throws UserError if there are none.
  static std::int64_t per_epoch(const DataSet& set, std::int64_t seq_len);

  // Takes `order`: the sample number at each position. Numbers run on over epochs: number n is sample n modulo
  // per_epoch() of the row. `set` must outlive this object.
  RowSamples(const DataSet& set, std::int64_t seq_len, std::vector<std::int64_t> order);
  std::int64_t count() const override { return static_cast<std::int64_t>(order_.size()); }
  std::int64_t sample(std::int64_t position) const override;
  void read(std::int64_t position, std::int64_t* tokens, std::uint8_t* is_target) const override;

 private:
  const DataSet& set_;
  std::int64_t seq_len_;
  std::int64_t per_epoch_;
  std::vector<std::int64_t> order_;
};

}  // namespace strata::toolbox
