// Data sets made of files that are integers, behind a header or not. A plugin says where each file's tokens begin and
// of which type they are:
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

// How one token id lies in a file. Ids are never negative; the signed types are there because files have them.
enum class TokenType { U8, I8, U16, I16, U32, I32, I64 };

const char* to_string(TokenType type);  // "u16"
std::size_t bytes_of(TokenType type);

// A file that from some byte on is token ids, back to back and little-endian, to its end. [any rank]
class TokenFile {
 public:
  // `header_bytes`: before the first token. Throws UserError "PATH: ..." when there is no token, or no whole number of
  // them.
  TokenFile(InputFile file, TokenType type, std::uint64_t header_bytes = 0);

  const std::string& path() const { return file_.path(); }
  TokenType type() const { return type_; }
  std::int64_t token_count() const { return token_count_; }
  // Widens tokens [first, first + count) into `destination`, which are in the file. Throws EnvironmentError when the
  // file was cut after it was opened.
  void copy(std::int64_t first, std::int64_t count, std::int64_t* destination) const;

 private:
  InputFile file_;
  TokenType type_;
  std::uint64_t header_bytes_;
  std::int64_t token_count_ = 0;
};

// The tokens of one file behind those of another.
class TokenFiles : public DataSet {
 public:
  // At least one. Throws UserError when they are not of one type.
  explicit TokenFiles(std::vector<TokenFile> files);
  std::vector<TokenFileInfo> files() const override;
  void copy(std::int64_t first, std::int64_t count, std::int64_t* destination) const override;

 private:
  std::vector<TokenFile> files_;
  std::vector<std::int64_t> first_;  // of each file, the place of its first token in the row; then the row's length
};

// Whether `path` is a pattern like fineweb_train_*.bin, and no file has that very name.
bool is_pattern(const std::string& path);
// All files that match a pattern, in the order of their names' bytes; `path` itself when it is none. Throws UserError
// when none match.
std::vector<std::string> files_matching(const std::string& path);
// Each of those files, opened.
std::vector<TokenFile> open_files(const std::string& path, const std::function<TokenFile(InputFile)>& open);

// Writes `header` and the tokens to a new file, or over an old one. Throws UserError for an id that the type cannot
// hold, EnvironmentError when the disk fails.
void write_token_file(const std::string& path, TokenType type, const std::vector<std::int64_t>& tokens,
                      std::string_view header = {});

// An order of a plugin's own over samples that are cut one behind the other: sample i is tokens
// [i * seq_len, (i + 1) * seq_len + 1) of the row, and what is left at its end is not used.
class RowSamples final : public Samples {
 public:
  // How many such samples a row has: floor((tokens - 1) / seq_len). Throws UserError when there is not one.
  static std::int64_t per_epoch(const DataSet& set, std::int64_t seq_len);

  // `order`: by position the number of a sample; numbers go on in the next epoch behind the last sample of one.
  RowSamples(const DataSet& set, std::int64_t seq_len, std::vector<std::int64_t> order);
  std::int64_t count() const override { return static_cast<std::int64_t>(order_.size()); }
  std::int64_t sample(std::int64_t position) const override;
  void read(std::int64_t position, std::int64_t* destination) const override;

 private:
  const DataSet& set_;
  std::int64_t seq_len_;
  std::int64_t per_epoch_;
  std::vector<std::int64_t> order_;
};

}  // namespace strata::toolbox
