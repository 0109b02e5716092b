#include <strata/error.hpp>

#include <random>
#include <sstream>

#include "catch.hpp"
#include "error_of.hpp"
#include "temporary_folder.hpp"
#include "tools/data/data_command.hpp"
#include "tools/tokenizer/tokenizer.hpp"
#include "unit/tools/tokenizer/small_tokenizer.hpp"

using namespace strata::cli;
using strata::UserError;
using strata::tokenizer::Tokenizer;

namespace {

std::string pack_by(const DataPackOptions& options) {
  std::ostringstream out, err;
  data_pack(options, out, err);
  return out.str();
}

std::vector<std::uint32_t> tokens_of(const std::string& path) {
  const std::string bytes = read_file(path);
  std::vector<std::uint32_t> tokens;
  for (std::size_t at = 0; at + 2 <= bytes.size(); at += 2) {
    tokens.push_back(static_cast<unsigned char>(bytes[at]) | static_cast<unsigned char>(bytes[at + 1]) << 8);
  }
  return tokens;
}

// Words, spaces, line breaks, and bytes that are no UTF-8.
std::string random_text(std::size_t bytes) {
  const char* const pieces[] = {"hell", "o", " ", " ", "  ", "\n", "the", "\xe4\xb8\x96", "\xff", "<|endoftext|>", "."};
  std::mt19937 random(7);
  std::string text;
  while (text.size() < bytes) text += pieces[random() % std::size(pieces)];
  return text;
}

}  // namespace

TEST_CASE("a file of several parts becomes the tokens of the whole, with any number of threads") {
  const TemporaryFolder folder;
  const TokenizerFile file;
  const std::string text = random_text(5 << 20), lines(3 << 20, 'h');  // the second has no place to cut
  write_file(folder / "a.txt", text);
  write_file(folder / "b.txt", lines);
  const Tokenizer tokenizer(file.path());
  std::vector<std::uint32_t> wanted = tokenizer.encode(text);
  wanted.push_back(260);
  const std::vector<std::uint32_t> second = tokenizer.encode(lines);
  wanted.insert(wanted.end(), second.begin(), second.end());
  wanted.push_back(260);
  DataPackOptions options{{folder / "a.txt", folder / "b.txt"}, folder / "out.bin", "", true};
  options.tokenizer = file.path();
  for (options.threads = 1; options.threads <= 3; ++options.threads) {
    CHECK_THAT(pack_by(options), Contains("2 files, 2 documents") && Contains(file.path()));
    CHECK((tokens_of(folder / "out.bin") == wanted));
  }
}

TEST_CASE("the first wrong line of many is named, whichever thread finds one first") {
  const TemporaryFolder folder;
  const TokenizerFile file;
  std::string lines;
  for (int number = 1; number <= 200000; ++number) {
    lines += number == 90001 || number == 190000 ? "{\"text\": 5}\n" : "{\"text\": \"hello the\"}\n";
  }
  write_file(folder / "lines.jsonl", lines);
  DataPackOptions options{{folder / "lines.jsonl"}, folder / "out.bin", "", false};
  options.tokenizer = file.path();
  for (options.threads = 1; options.threads <= 3; ++options.threads) {
    CHECK_THAT(error_of<UserError>([&] { pack_by(options); }), Contains("lines.jsonl:90001: its 'text' is number"));
    CHECK(folder.names() == 1);
  }
}

TEST_CASE("the end of a document is the tokenizer's, a given id or none") {
  const TemporaryFolder folder;
  const TokenizerFile file;
  write_file(folder / "lines.jsonl", "{\"text\": \"he\"}\n\n{\"text\": \"\"}\n{\"text\": \"ll\"}");
  DataPackOptions options{{folder / "lines.jsonl"}, folder / "out.bin", "", true};
  options.tokenizer = file.path();
  const auto packed = [&](const std::string& end) {
    options.document_end = end;
    pack_by(options);
    return tokens_of(folder / "out.bin");
  };
  CHECK(packed("auto") == std::vector<std::uint32_t>{256, 260, 260, 257, 260});
  CHECK(packed("7") == std::vector<std::uint32_t>{256, 7, 7, 257, 7});
  CHECK(packed("none") == std::vector<std::uint32_t>{256, 257});
  CHECK_THAT(error_of<UserError>([&] { packed("261"); }), Contains("--document-end is 261"));
}
