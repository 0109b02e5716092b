#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/toolbox/llm_c_header.hpp>
#include <strata/toolbox/token_files.hpp>

#include <algorithm>
#include <memory>

namespace {

using namespace strata;
using toolbox::LlmCHeader;
using toolbox::TokenFile;
using toolbox::TokenType;

#define NANOGPT_OPTIONS(OPTION)                               \
  OPTION(text, token_type, "auto", "one_of=auto|u16|u32", "", \
         "Type of one token; auto: u32 for files named *.u32 or *.u32.bin, else u16.")
STRATA_OPTIONS(NanogptOptions, NANOGPT_OPTIONS)

// If u32 tokens with ids below 65536 are read as u16, every second token is 0.
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
  throw UserError(Place{file.path()}, "every second of its first " + std::to_string(count) +
                                          " tokens is 0, as when u32 tokens are read as u16, the type chosen by the "
                                          "file's name; set token_type to u32, or to u16 if u16 is right");
}

class Nanogpt final : public DataSource {
 public:
  Nanogpt(PluginContext& /*context*/, const NanogptOptions& options) : token_type_(options.token_type) {}

  std::unique_ptr<DataSet> open(const std::string& path) const override {
    return std::make_unique<toolbox::TokenFiles>(toolbox::open_files(path, [&](InputFile file) {
      const LlmCHeader header(file);
      if (header.is_of_tokens() && header.file_bytes() == file.size())
        throw UserError(Place{file.path()},
                        "starts with the 1024-byte header of llm.c's format; use the data plugin llm_c");
      TokenFile tokens(std::move(file), type_of(path));
      if (token_type_ == "auto") check_not_wider(tokens);
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
