#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/toolbox/foreign_files.hpp>
#include <strata/toolbox/llm_c_header.hpp>
#include <strata/toolbox/token_files.hpp>

#include <memory>

#include "token_width.hpp"

namespace {

using namespace strata;
using toolbox::LlmCHeader;
using toolbox::TokenFile;
using toolbox::TokenType;

#define NANOGPT_OPTIONS(OPTION)                                                                                        \
  OPTION(text, token_type, "auto", "one_of=auto|u16|u32", "",                                                          \
         "Type of one token. auto: u32 for files named `*.u32` or `*.u32.bin`, else u16; a file that appears to have " \
         "another type is refused.")
STRATA_OPTIONS(NanogptOptions, NANOGPT_OPTIONS)

class Nanogpt final : public DataSource {
 public:
  Nanogpt(PluginContext& /*context*/, const NanogptOptions& options) : token_type_(options.token_type) {}

  std::unique_ptr<DataSet> open(const std::string& path) const override {
    return std::make_unique<toolbox::TokenFiles>(toolbox::open_files(path, [&](InputFile file) {
      const LlmCHeader header(file);
      if (header.is_of_tokens() && header.file_bytes() == file.size())
        throw UserError(Place{file.path()},
                        "starts with the 1024-byte header of llm.c's format; use the data plugin llm_c");
      const bool automatic = token_type_ == "auto";
      if (automatic && toolbox::is_text(file))
        throw UserError(Place{file.path()},
                        "is text, and token ids are wanted; `strata data pack` makes a token file of it (or set "
                        "token_type, if these are tokens)");
      const TokenType type = type_of(file.path());
      TokenFile tokens(std::move(file), type);
      if (automatic) nanogpt::check_width(tokens);
      return tokens;
    }));
  }

  void write(const std::string& path, const std::vector<std::int64_t>& tokens) const override {
    toolbox::write_token_file(path, type_of(path), tokens);
  }

 private:
  TokenType type_of(const std::string& path) const {
    const bool wide = path.ends_with(".u32") || path.ends_with(".u32.bin");
    return (token_type_ == "auto" ? wide : token_type_ == "u32") ? TokenType::U32 : TokenType::U16;
  }

  std::string token_type_;
};

}  // namespace

STRATA_PLUGIN(Nanogpt, NanogptOptions, NANOGPT_OPTIONS)
