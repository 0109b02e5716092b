#include "data/token_format.hpp"

#include <glob.h>
#include <strata/error.hpp>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

namespace strata::data {
namespace {

constexpr std::uint64_t llmc_header_bytes = 1024;
constexpr std::uint32_t llmc_u16_magic = 20240520, llmc_u32_magic = 20240801;

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

bool is_pattern(const std::string& path) {
  return path.find_first_of("*?[") != std::string::npos && !exists(path);
}

// The files that `path` stands for, itself when it is no pattern.
std::vector<std::string> matching(const std::string& path) {
  if (!is_pattern(path)) return {path};
  glob_t found{};
  // NOSORT: its sort depends on the language of the environment.
  const int status = ::glob(path.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> paths;
  if (status == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (paths.empty()) throw UserError(Place{path}, "no file matches this pattern");
  std::sort(paths.begin(), paths.end());
  return paths;
}

// The first integers of a file; zeros where it is shorter.
struct Head {
  std::uint32_t magic = 0, version = 0, count = 0;
  explicit Head(const InputFile& file) {
    if (file.size() < sizeof *this) return;
    file.read_at(0, this, sizeof *this);
  }
};

// What llm.c's other files hold, which start alike; null for none of them.
const char* other_llmc_file(std::uint32_t magic) {
  switch (magic) {
    case 20240326:
      return "weights";
    case 20240327:
      return "weights with gradients for its tests";
    case 20240328:
      return "a tokenizer";
    case 20240522:
      return "multiple-choice questions";
    case 20240527:
      return "an optimizer's state";
    default:
      return nullptr;
  }
}

bool is_llmc(const InputFile& file) {
  const Head head(file);
  if (file.size() < llmc_header_bytes) return false;
  if (head.magic != llmc_u16_magic && head.magic != llmc_u32_magic) return false;
  return file.size() == llmc_header_bytes + std::uint64_t{head.count} * (head.magic == llmc_u16_magic ? 2 : 4);
}

TokenFile open_nanogpt_file(const std::string& path, TokenType type) {
  MappedFile file(path);
  if (is_llmc(file.file())) {
    throw UserError(Place{path}, "starts with the 1024-byte header of llm.c's format; set data.format to llm.c");
  }
  return TokenFile(std::move(file), type);
}

TokenFile open_llmc_file(const std::string& path) {
  MappedFile file(path);
  const Head head(file.file());
  const bool narrow = head.magic == llmc_u16_magic;
  if (!narrow && head.magic != llmc_u32_magic) {
    const char* other = other_llmc_file(head.magic);
    throw UserError(Place{path}, other != nullptr
                                     ? std::string("is one of llm.c's files, but holds ") + other + " and not tokens"
                                     : "does not start with one of the numbers of llm.c's token files, 20240520 (u16) "
                                       "or 20240801 (u32); is it of another format?");
  }
  if (file.size() < llmc_header_bytes) {
    throw UserError(Place{path}, "holds " + std::to_string(file.size()) +
                                     " bytes, and the header alone of llm.c's format takes 1024; is it cut off?");
  }
  const std::uint32_t version = narrow ? 1 : 7;
  if (head.version != version) {
    throw UserError(Place{path}, "is of version " + std::to_string(head.version) + "; version " +
                                     std::to_string(version) + " is the only one known for the number " +
                                     std::to_string(head.magic) + " that it starts with");
  }
  if (head.count > INT32_MAX) {
    throw UserError(Place{path}, "its header says " + std::to_string(static_cast<std::int32_t>(head.count)) +
                                     " tokens; is it damaged?");
  }
  const std::uint64_t wanted = llmc_header_bytes + std::uint64_t{head.count} * (narrow ? 2 : 4);
  if (file.size() != wanted) {
    throw UserError(Place{path}, "holds " + std::to_string(file.size()) + " bytes, and the " +
                                     std::to_string(head.count) + " tokens that its header says make " +
                                     std::to_string(wanted) + "; is it cut off or damaged?");
  }
  return TokenFile(std::move(file), narrow ? TokenType::U16 : TokenType::U32, llmc_header_bytes);
}

// u32 tokens read as u16 are the ids with a zero behind each, where ids are below 65536.
void check_not_wider(const TokenFile& file) {
  constexpr std::int64_t looked_at = 4096, fewest = 64;
  const std::int64_t count = std::min(file.token_count(), looked_at) / 2 * 2;
  if (file.type() != TokenType::U16 || count < fewest) return;
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(count));
  file.copy(0, count, tokens.data());
  bool ids = false, zeros = true;
  for (std::size_t i = 0; i < tokens.size(); i += 2) {
    ids = ids || tokens[i] != 0;
    zeros = zeros && tokens[i + 1] == 0;
  }
  if (!ids || !zeros) return;
  throw UserError(
      Place{file.path()},
      "every second of its first " + std::to_string(count) +
          " tokens is 0, as when u32 tokens are read as u16, and only its name speaks for u16; set "
          "data.token_type (validation.token_type, --width of `strata data`) to u32, or to u16 if that is right");
}

TokenSource open_nanogpt(const std::string& path, std::optional<TokenType> type) {
  std::vector<TokenFile> files;
  for (const std::string& file : matching(path)) {
    files.push_back(open_nanogpt_file(file, type.value_or(token_type_of(path))));
    if (!type) check_not_wider(files.back());
  }
  return TokenSource("nanogpt", path, std::move(files));
}

TokenSource open_llmc(const std::string& path, std::optional<TokenType>) {
  std::vector<TokenFile> files;
  for (const std::string& file : matching(path)) files.push_back(open_llmc_file(file));
  return TokenSource("llm.c", path, std::move(files));
}

std::string megatron_prefix(const std::string& path) {
  const bool suffixed = path.ends_with(".bin") || path.ends_with(".idx");
  return suffixed && !exists(path + ".idx") ? path.substr(0, path.size() - 4) : path;
}

TokenSource open_megatron(const std::string& path, std::optional<TokenType>) {
  const std::string prefix = megatron_prefix(path);
  if (!exists(prefix + ".idx") && is_pattern(path)) {
    throw UserError(Place{path}, "is a pattern; the format megatron takes one PREFIX, of PREFIX.bin and PREFIX.idx");
  }
  auto index = std::make_unique<const MegatronIndex>(prefix + ".idx");
  MappedFile tokens(prefix + ".bin");
  const std::uint64_t wanted = static_cast<std::uint64_t>(index->token_count()) * bytes_of(index->type());
  if (tokens.size() != wanted) {
    throw UserError(Place{tokens.path()},
                    "holds " + std::to_string(tokens.size()) + " bytes, and " + index->path() + " says " +
                        std::to_string(index->token_count()) + " " + to_string(index->type()) + " tokens, which are " +
                        std::to_string(wanted) + " bytes; do the two belong together, and are they whole?");
  }
  std::vector<TokenFile> files;
  files.emplace_back(std::move(tokens), index->type());
  return TokenSource("megatron", path, std::move(files), std::move(index));
}

struct Format {
  std::string name;
  bool states_its_type;
  bool has_its_own_order;
  TokenSource (*open)(const std::string& path, std::optional<TokenType> type);
};

const std::vector<Format>& formats() {
  static const std::vector<Format> all{{"nanogpt", false, false, open_nanogpt},
                                       {"llm.c", true, false, open_llmc},
                                       {"megatron", true, true, open_megatron}};
  return all;
}

const Format& format_of(const std::string& name) {
  const auto found =
      std::find_if(formats().begin(), formats().end(), [&](const Format& one) { return one.name == name; });
  strata_check(found != formats().end(), "there is no such format of token files");
  return *found;
}

}  // namespace

const std::vector<std::string>& token_formats() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const Format& format : formats()) result.push_back(format.name);
    return result;
  }();
  return names;
}

bool states_its_type(const std::string& format) {
  return format_of(format).states_its_type;
}

bool has_its_own_order(const std::string& format) {
  return format_of(format).has_its_own_order;
}

TokenSource open_tokens(const std::string& format, const std::string& path, std::optional<TokenType> type) {
  const Format& found = format_of(format);
  strata_check(!type || !found.states_its_type, "open_tokens: files of this format say the type of their tokens");
  return found.open(path, type);
}

std::string detect_format(const std::string& path) {
  if (path.ends_with(".idx") || exists(megatron_prefix(path) + ".idx")) return "megatron";
  const InputFile file(matching(path).front());
  const Head head(file);
  const bool llmc =
      head.magic == llmc_u16_magic || head.magic == llmc_u32_magic || other_llmc_file(head.magic) != nullptr;
  // A file of nanogpt's may start with any ids, so llm.c's numbers alone decide nothing when what follows is no header.
  return llmc && head.version <= 7 ? "llm.c" : "nanogpt";
}

}  // namespace strata::data
