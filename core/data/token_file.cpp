#include "data/token_file.hpp"

#include <sys/mman.h>
#include <strata/error.hpp>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

namespace strata::data {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are read as they lie on the disk");

constexpr std::size_t block_bytes = std::size_t{1} << 20;

std::size_t bytes_of(TokenWidth width) {
  return static_cast<std::size_t>(width);
}

// llm.c's token files start with 256 integers of 4 bytes: a magic number, a version, the token count.
bool has_llmc_header(const InputFile& file) {
  constexpr std::uint64_t header_bytes = 1024;
  if (file.size() < header_bytes) return false;
  std::uint32_t header[3] = {};
  file.read_at(0, header, sizeof header);
  if (header[0] != 20240520 && header[0] != 20240801) return false;
  return file.size() == header_bytes + std::uint64_t{header[2]} * (header[0] == 20240520 ? 2 : 4);
}

template <typename Token>
void widen(const void* mapping, std::int64_t first, std::int64_t count, std::int64_t* destination) {
  const auto* tokens = static_cast<const Token*>(mapping) + first;
  std::copy(tokens, tokens + count, destination);
}

// Counts of ids: an array for the small ones that nearly all files consist of, a table for the rest.
class Histogram {
 public:
  template <typename Token>
  void add(const Token* tokens, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      if (tokens[i] < small_.size()) {
        ++small_[tokens[i]];
      } else {
        ++large_[tokens[i]];
      }
    }
  }

  TokenStatistics statistics(std::int64_t total) const {
    TokenStatistics result;
    result.smallest = UINT32_MAX;
    const auto take = [&](std::uint32_t id, std::int64_t count) {
      const double share = static_cast<double>(count) / static_cast<double>(total);
      result.unigram_entropy -= share * std::log(share);
      result.smallest = std::min(result.smallest, id);
      result.largest = std::max(result.largest, id);
      ++result.distinct;
    };
    for (std::size_t id = 0; id < small_.size(); ++id) {
      if (small_[id] > 0) take(static_cast<std::uint32_t>(id), small_[id]);
    }
    for (const auto& [id, count] : large_) take(id, count);
    return result;
  }

 private:
  std::vector<std::int64_t> small_ = std::vector<std::int64_t>(std::size_t{1} << 16);
  std::unordered_map<std::uint32_t, std::int64_t> large_;
};

}  // namespace

TokenWidth parse_token_width(const std::string& text) {
  if (text == "u16") return TokenWidth::U16;
  if (text == "u32") return TokenWidth::U32;
  throw UserError("'" + text + "' is not a width of tokens; it is u16 (ids below 65536) or u32");
}

TokenWidth token_width_of(const std::string& path) {
  return path.ends_with(".u32") || path.ends_with(".u32.bin") ? TokenWidth::U32 : TokenWidth::U16;
}

const char* to_string(TokenWidth width) {
  return width == TokenWidth::U16 ? "u16" : "u32";
}

TokenFile::TokenFile(const std::string& path, std::optional<TokenWidth> width)
    : file_(path), width_(width.value_or(token_width_of(path))) {
  const std::uint64_t bytes = file_.size();
  if (bytes == 0) throw UserError(Place{path}, "is empty; a token file holds at least seq_len + 1 tokens");
  if (bytes % bytes_of(width_) != 0) {
    throw UserError(Place{path}, "holds " + std::to_string(bytes) + " bytes, which is no whole number of " +
                                     to_string(width_) + " tokens (" + std::to_string(bytes_of(width_)) +
                                     " bytes each); is it cut off, or of another width?");
  }
  if (has_llmc_header(file_)) {
    throw UserError(
        Place{path},
        "starts with the 1024-byte header of llm.c's format; raw tokens are wanted, so cut it off with tail -c +1025");
  }
  token_count_ = static_cast<std::int64_t>(bytes / bytes_of(width_));
  void* mapping = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file_.descriptor(), 0);
  if (mapping == MAP_FAILED) {
    throw EnvironmentError(path + ": cannot be mapped into memory: " + std::generic_category().message(errno));
  }
  mapping_ = mapping;
}

TokenFile::TokenFile(TokenFile&& other) noexcept
    : file_(std::move(other.file_)),
      width_(other.width_),
      token_count_(other.token_count_),
      mapping_(std::exchange(other.mapping_, nullptr)) {}

TokenFile::~TokenFile() {
  if (mapping_ != nullptr) ::munmap(const_cast<void*>(mapping_), file_.size());
}

std::int64_t TokenFile::sample_count(std::int64_t seq_len) const {
  strata_check(seq_len >= 1, "TokenFile::sample_count: seq_len is at least 1");
  const std::int64_t samples = (token_count_ - 1) / seq_len;
  if (samples >= 1) return samples;
  throw UserError(Place{path()}, "holds " + std::to_string(token_count_) + " tokens, and one sample of seq_len " +
                                     std::to_string(seq_len) + " takes seq_len + 1 = " + std::to_string(seq_len + 1) +
                                     "; use a longer file or a smaller seq_len");
}

void TokenFile::copy(std::int64_t first, std::int64_t count, std::int64_t* destination) const {
  strata_check(first >= 0 && count >= 0 && first <= token_count_ - count, "TokenFile::copy: a range outside the file");
  file_.check_not_cut();  // touching a mapped page past the file's end kills the process without a word
  if (width_ == TokenWidth::U16) {
    widen<std::uint16_t>(mapping_, first, count, destination);
  } else {
    widen<std::uint32_t>(mapping_, first, count, destination);
  }
}

// Reads and does not touch the mapping, so that a look at the whole file does not make it part of this process's
// resident memory.
template <typename Token, typename Visit>
void TokenFile::scan_as(Visit visit) const {
  std::vector<Token> block(block_bytes / sizeof(Token));
  for (std::int64_t first = 0; first < token_count_; first += static_cast<std::int64_t>(block.size())) {
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(block), token_count_ - first));
    file_.read_at(static_cast<std::uint64_t>(first) * sizeof(Token), block.data(), count * sizeof(Token));
    visit(block.data(), count, first);
  }
}

template <typename Visit>
void TokenFile::scan(Visit visit) const {
  if (width_ == TokenWidth::U16) {
    scan_as<std::uint16_t>(visit);
  } else {
    scan_as<std::uint32_t>(visit);
  }
}

void TokenFile::check_vocabulary(std::int64_t vocabulary) const {
  scan([&](const auto* tokens, std::size_t count, std::int64_t first) {
    // The maximum of a block is a loop the compiler vectorises; the search for the culprit runs once, if at all.
    auto largest = tokens[0];
    for (std::size_t i = 1; i < count; ++i) largest = std::max(largest, tokens[i]);
    if (std::int64_t{largest} < vocabulary) return;
    const auto* wrong = std::find_if(tokens, tokens + count, [&](auto id) { return std::int64_t{id} >= vocabulary; });
    throw UserError(Place{path()},
                    "token " + std::to_string(first + (wrong - tokens)) + " has id " + std::to_string(*wrong) +
                        ", and the model's vocabulary ends at " + std::to_string(vocabulary - 1) +
                        "; is it the file of another tokenizer, or of another width than " + to_string(width_) + "?");
  });
}

TokenStatistics TokenFile::statistics(const std::function<void(std::int64_t)>& progress) const {
  Histogram histogram;
  scan([&](const auto* tokens, std::size_t count, std::int64_t first) {
    histogram.add(tokens, count);
    if (progress) progress(first + static_cast<std::int64_t>(count));
  });
  return histogram.statistics(token_count_);
}

}  // namespace strata::data
