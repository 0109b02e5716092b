#include <strata/error.hpp>
#include <strata/options.hpp>
#include <strata/toolbox/llm_c_header.hpp>
#include <strata/toolbox/token_files.hpp>

#include <array>
#include <memory>

namespace {

using namespace strata;
using toolbox::LlmCHeader;
using toolbox::TokenFile;
using toolbox::TokenType;

STRATA_NO_OPTIONS(LlmCOptions)

// The content of llm.c's other files, which have similar headers; null for an unknown number.
const char* other_file(std::uint32_t magic) {
  switch (magic) {
    case 20240326:
      return "weights";
    case 20240327:
      return "weights with gradients for tests";
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

std::uint32_t version_of(std::uint32_t magic) {
  return magic == LlmCHeader::u16_magic ? 1 : 7;
}

void check(const LlmCHeader& header, const InputFile& file) {
  const auto refuse = [&](const std::string& why) { throw UserError(Place{file.path()}, why); };
  if (!header.is_of_tokens()) {
    const char* other = other_file(header.magic);
    refuse(other != nullptr ? std::string("is a file of llm.c, but holds ") + other + " instead of tokens"
                            : "does not start with the magic number of llm.c's token files, 20240520 (u16) or 20240801 "
                              "(u32); choose the data plugin of its format");
  }
  if (file.size() < LlmCHeader::bytes)
    refuse(format("holds {} bytes, but the header of llm.c's format alone has 1024; it may be truncated", file.size()));
  const std::uint32_t version = version_of(header.magic);
  if (header.version != version)
    refuse(format("has version {}; a file with the magic number {} must have version {}", header.version, header.magic,
                  version));
  if (header.count > INT32_MAX)
    refuse(format("its header gives {} tokens; it may be damaged", static_cast<std::int32_t>(header.count)));
  if (file.size() != header.file_bytes())
    refuse(format("holds {} bytes, but a file of the {} tokens in its header has {}; it may be truncated or damaged",
                  file.size(), header.count, header.file_bytes()));
}

class LlmC final : public DataSource {
 public:
  LlmC(PluginContext& /*context*/, const LlmCOptions& /*options*/) {}

  std::unique_ptr<DataSet> open(const std::string& path) const override {
    return std::make_unique<toolbox::TokenFiles>(toolbox::open_files(path, [](InputFile file) {
      const LlmCHeader header(file);
      check(header, file);
      const TokenType type = header.magic == LlmCHeader::u16_magic ? TokenType::U16 : TokenType::U32;
      return TokenFile(std::move(file), type, LlmCHeader::bytes);
    }));
  }

  // A file of another format may happen to start with the magic number, so the version must be plausible too.
  bool recognizes(const std::string& path) const override {
    const LlmCHeader header(InputFile(toolbox::files_matching(path).front()));
    return (header.is_of_tokens() || other_file(header.magic) != nullptr) && header.version <= 7;
  }

  void write(const std::string& path, const std::vector<std::int64_t>& tokens) const override {
    std::array<std::uint32_t, LlmCHeader::bytes / 4> header{LlmCHeader::u32_magic, version_of(LlmCHeader::u32_magic),
                                                            static_cast<std::uint32_t>(tokens.size())};
    toolbox::write_token_file(path, TokenType::U32, tokens,
                              {reinterpret_cast<const char*>(header.data()), LlmCHeader::bytes});
  }
};

}  // namespace

STRATA_PLUGIN(LlmC, LlmCOptions)
