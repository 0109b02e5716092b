#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/toolbox/foreign_files.hpp>
#include <strata/toolbox/llm_c_header.hpp>
#include <strata/toolbox/token_files.hpp>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "token_width.hpp"

namespace {

using namespace strata;
using toolbox::LlmCHeader;
using toolbox::TokenFile;
using toolbox::TokenType;

#define NANOGPT_OPTIONS(OPTION)                                                                                        \
  OPTION(text, token_type, "auto", "one_of=auto|u16|u32", "",                                                          \
         "Type of one token. auto: u32 for files named `*.u32` or `*.u32.bin`, else u16; a file that appears to have " \
         "another type is refused.")                                                                                   \
  OPTION(text, mask, "", "", "file",                                                                                   \
         "Loss mask: a file, or a pattern of files, with one byte for each token of data.path: 1 for a target, 0 for " \
         "a token that the model reads and is not trained to predict, such as a prompt. Empty: every token is a "      \
         "target.")
STRATA_OPTIONS(NanogptOptions, NANOGPT_OPTIONS)

class Nanogpt final : public DataSource {
 public:
  Nanogpt(PluginContext& /*context*/, const NanogptOptions& options)
      : token_type_(options.token_type), mask_(options.mask) {}

  std::unique_ptr<DataSet> open(const std::string& path) const override {
    std::vector<TokenFile> files = toolbox::open_files(path, [&](InputFile file) {
      const LlmCHeader header(file);
      if (header.is_of_tokens() && header.file_bytes() == file.size())
        throw UserError(Place{file.path()},
                        "starts with the 1024-byte header of llm.c's format; use the data plugin llm_c");
      const bool automatic = token_type_ == "auto";
      if (automatic && toolbox::is_text(file))
        throw UserError(
            Place{file.path()},
            "contains text, not token ids; convert it with `strata data pack`, or set token_type if these are tokens");
      const TokenType type = type_of(file.path());
      TokenFile tokens(std::move(file), type);
      if (automatic) nanogpt::check_width(tokens);
      return tokens;
    });
    auto set = std::make_unique<toolbox::TokenFiles>(std::move(files), masks());
    // The first bytes reveal files of other formats; the rest is checked as it is read.
    std::vector<std::uint8_t> first(static_cast<std::size_t>(std::min<std::int64_t>(set->token_count(), 1 << 16)));
    if (set->has_mask()) set->copy_mask(0, std::ssize(first), first.data());
    return set;
  }

  void write(const std::string& path, const std::vector<std::int64_t>& tokens) const override {
    toolbox::write_token_file(path, type_of(path), tokens);
  }

 private:
  std::vector<TokenFile> masks() const {
    if (mask_.empty()) return {};
    return toolbox::open_files(mask_, [](InputFile file) { return TokenFile(std::move(file), TokenType::U8); });
  }

  TokenType type_of(const std::string& path) const {
    const bool wide = path.ends_with(".u32") || path.ends_with(".u32.bin");
    return (token_type_ == "auto" ? wide : token_type_ == "u32") ? TokenType::U32 : TokenType::U16;
  }

  std::string token_type_, mask_;
};

}  // namespace

STRATA_PLUGIN(Nanogpt, NanogptOptions, NANOGPT_OPTIONS)
