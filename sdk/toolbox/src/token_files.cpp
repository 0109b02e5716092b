#include <strata/toolbox/foreign_files.hpp>
#include <strata/toolbox/token_files.hpp>

#include <glob.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>

namespace strata::toolbox {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and read without conversion");

// Calls call(Integer{}) with the C++ type of `type`.
template <typename Call>
decltype(auto) with_token_type(TokenType type, Call call) {
  switch (type) {
    case TokenType::U8:
      return call(std::uint8_t{});
    case TokenType::I8:
      return call(std::int8_t{});
    case TokenType::U16:
      return call(std::uint16_t{});
    case TokenType::I16:
      return call(std::int16_t{});
    case TokenType::U32:
      return call(std::uint32_t{});
    case TokenType::I32:
      return call(std::int32_t{});
    case TokenType::I64:
      return call(std::int64_t{});
  }
  throw Bug("with_token_type: no such type");
}

}  // namespace

const char* to_string(TokenType type) {
  constexpr std::array names{"u8", "i8", "u16", "i16", "u32", "i32", "i64"};
  return names.at(static_cast<std::size_t>(type));
}

std::size_t bytes_of(TokenType type) {
  return with_token_type(type, [](auto example) { return sizeof example; });
}

TokenFile::TokenFile(InputFile file, TokenType type, std::uint64_t header_bytes)
    : file_(std::move(file)), type_(type), header_bytes_(header_bytes) {
  const std::size_t width = bytes_of(type);
  if (header_bytes == 0) refuse_foreign_file(file_);
  strata_check(header_bytes <= file_.size(), "TokenFile: a header longer than the file");
  const std::uint64_t bytes = file_.size() - header_bytes;
  if (bytes == 0) {
    throw UserError(Place{path()}, "{}; a token file needs at least seq_len + 1 tokens",
                    header_bytes == 0 ? "is empty" : "holds no tokens");
  }
  if (bytes % width != 0) {
    throw UserError(Place{path()},
                    "holds {} bytes of tokens, which is not a whole number of {} tokens ({} bytes each); it may be "
                    "truncated, or of another type",
                    bytes, to_string(type), width);
  }
  token_count_ = static_cast<std::int64_t>(bytes / width);
}

void TokenFile::copy(std::int64_t first, std::int64_t count, std::int64_t* destination) const {
  with_token_type(type_, [&](auto example) {
    std::array<decltype(example), 8192> block;
    while (count > 0) {
      const std::int64_t part = std::min(count, std::ssize(block));
      file_.read_at(header_bytes_ + static_cast<std::uint64_t>(first) * sizeof example, block.data(),
                    static_cast<std::size_t>(part) * sizeof example);
      destination = std::copy(block.begin(), block.begin() + part, destination);
      first += part;
      count -= part;
    }
  });
}

TokenFiles::TokenFiles(std::vector<TokenFile> files, std::vector<TokenFile> masks)
    : files_(std::move(files)), masks_(std::move(masks)), first_{0} {
  strata_check(!files_.empty(), "TokenFiles: at least one file");
  const TokenType type = files_.front().type();
  for (const TokenFile& file : files_) {
    if (file.type() != type) {
      throw UserError(
          Place{file.path()},
          "its tokens are {}, but those of {} are {}; all files of a data set must have the same token type",
          to_string(file.type()), files_.front().path(), to_string(type));
    }
    first_.push_back(first_.back() + file.token_count());
  }
  if (masks_.empty()) return;
  if (masks_.size() != files_.size())
    throw UserError(Place{masks_.front().path()},
                    "is one of {} files of a mask, and the tokens are in {}; each file has its own mask", masks_.size(),
                    files_.size());
  for (std::size_t i = 0; i < files_.size(); ++i)
    if (masks_[i].token_count() != files_[i].token_count() || masks_[i].type() != TokenType::U8)
      throw UserError(Place{masks_[i].path()},
                      "has {} numbers of type {}, and {} has {} tokens; a mask has one byte for each token, 1 for a "
                      "target and 0 for a token that the loss ignores",
                      masks_[i].token_count(), to_string(masks_[i].type()), files_[i].path(), files_[i].token_count());
}

std::vector<TokenFileInfo> TokenFiles::files() const {
  std::vector<TokenFileInfo> infos;
  for (const TokenFile& file : files_) infos.push_back({file.path(), file.token_count(), to_string(file.type())});
  return infos;
}

template <typename Call>
void TokenFiles::in_files(std::int64_t first, std::int64_t count, Call call) const {
  strata_check(first >= 0 && count >= 0 && first <= first_.back() - count,
               "TokenFiles::copy: a range outside the row of tokens");
  if (count == 0) return;
  auto file = static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), first) - first_.begin()) - 1;
  for (std::int64_t done = 0; done < count; ++file) {
    const std::int64_t here = std::min(count - done, first_[file + 1] - first - done);
    call(file, first + done - first_[file], here, done);
    done += here;
  }
}

void TokenFiles::copy(std::int64_t first, std::int64_t count, std::int64_t* destination) const {
  in_files(first, count, [&](std::size_t file, std::int64_t from, std::int64_t here, std::int64_t behind) {
    files_[file].copy(from, here, destination + behind);
  });
}

void TokenFiles::copy_mask(std::int64_t first, std::int64_t count, std::uint8_t* is_target) const {
  strata_check(has_mask(), "TokenFiles::copy_mask: without a mask");
  std::vector<std::int64_t> mask;
  in_files(first, count, [&](std::size_t file, std::int64_t from, std::int64_t here, std::int64_t behind) {
    mask.resize(static_cast<std::size_t>(here));
    masks_[file].copy(from, here, mask.data());
    for (std::int64_t i = 0; i < here; ++i) {
      const std::int64_t value = mask[static_cast<std::size_t>(i)];
      if (value > 1)
        throw UserError(Place{masks_[file].path()},
                        "byte {} is {}; a mask holds 1 for a target and 0 for a token that the loss ignores", from + i,
                        value);
      is_target[behind + i] = static_cast<std::uint8_t>(value);
    }
  });
}

bool is_pattern(const std::string& path) {
  std::error_code ignored;
  return path.find_first_of("*?[") != std::string::npos && !std::filesystem::exists(path, ignored);
}

std::vector<std::string> files_matching(const std::string& path) {
  if (!is_pattern(path)) return {path};
  glob_t found{};
  // NOSORT: glob's own order depends on the locale.
  const int status = ::glob(path.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> paths;
  if (status == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (paths.empty()) throw UserError(Place{path}, "no file matches this pattern; correct the path");
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<TokenFile> open_files(const std::string& path, const std::function<TokenFile(InputFile)>& open) {
  std::vector<TokenFile> files;
  for (const std::string& file : files_matching(path)) files.push_back(open(InputFile(file)));
  return files;
}

void write_token_file(const std::string& path, TokenType type, const std::vector<std::int64_t>& tokens,
                      std::string_view header) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "wb"), &std::fclose);
  if (file == nullptr) throw_cannot_open(path, "cannot be written", errno);
  bool written = std::fwrite(header.data(), 1, header.size(), file.get()) == header.size();
  with_token_type(type, [&](auto example) {
    using Integer = decltype(example);
    for (const std::int64_t token : tokens) {
      const auto integer = static_cast<Integer>(token);
      if (static_cast<std::int64_t>(integer) != token)
        throw UserError(Place{path}, "token {} does not fit a {}", token, to_string(type));
      written = written && std::fwrite(&integer, sizeof integer, 1, file.get()) == 1;
    }
  });
  written = written && std::fflush(file.get()) == 0;
  if (!written) throw EnvironmentError("{}: cannot be written: {}", path, std::generic_category().message(errno));
}

std::int64_t RowSamples::per_epoch(const DataSet& set, std::int64_t seq_len) {
  const std::int64_t tokens = set.token_count();
  if (tokens - 1 >= seq_len) return (tokens - 1) / seq_len;
  throw UserError(Place{set.files().front().path}, "holds {} tokens, but one sample of seq_len {} needs {}", tokens,
                  seq_len, seq_len + 1);
}

RowSamples::RowSamples(const DataSet& set, std::int64_t seq_len, std::vector<std::int64_t> order)
    : set_(set), seq_len_(seq_len), per_epoch_(per_epoch(set, seq_len)), order_(std::move(order)) {}

std::int64_t RowSamples::sample(std::int64_t position) const {
  strata_check(position >= 0 && position < count(), "RowSamples: a position outside the order");
  return order_[static_cast<std::size_t>(position)];
}

void RowSamples::read(std::int64_t position, std::int64_t* tokens, std::uint8_t* is_target) const {
  const std::int64_t first = sample(position) % per_epoch_ * seq_len_;
  set_.copy(first, seq_len_ + 1, tokens);
  if (set_.has_mask()) set_.copy_mask(first, seq_len_ + 1, is_target);
}

}  // namespace strata::toolbox
