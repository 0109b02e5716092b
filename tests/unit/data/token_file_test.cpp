#include <fcntl.h>
#include <sys/stat.h>
#include <strata/error.hpp>

#include <cmath>
#include <random>
#include <vector>

#include "catch.hpp"
#include "error_of.hpp"
#include "temporary_folder.hpp"
#include "unit/data/open_tokens.hpp"

using namespace strata::data;
using strata::EnvironmentError;
using strata::UserError;

namespace {

TokenSource nanogpt(const std::string& path, const std::string& token_type = "auto") {
  return open_tokens("nanogpt", path, {{"token_type", token_type}});
}

std::string type_of(const TokenSource& source) {
  return source.files().front().type;
}

}  // namespace

TEST_CASE("a token file is read as it lies on the disk") {
  const TemporaryFolder folder;
  write_file(folder / "a.bin", std::string("\x01\x00\x00\x01\xff\xff", 6));
  write_file(folder / "b.u32", std::string("\x01\x00\x00\x00\x00\x00\x01\x80", 8));
  const TokenSource narrow = nanogpt(folder / "a.bin");
  REQUIRE(narrow.token_count() == 3);
  CHECK(type_of(narrow) == "u16");
  std::vector<std::int64_t> tokens(3);
  narrow.copy(0, 3, tokens.data());
  CHECK(tokens == std::vector<std::int64_t>{1, 256, 65535});
  const TokenSource wide = nanogpt(folder / "b.u32");
  REQUIRE(wide.token_count() == 2);
  wide.copy(0, 2, tokens.data());
  CHECK(tokens == std::vector<std::int64_t>{1, 0x80010000, 65535});
  CHECK_THROWS_AS(wide.copy(1, 2, tokens.data()), strata::Bug);
}

TEST_CASE("the width comes from the option or the name") {
  const TemporaryFolder folder;
  for (const char* name : {"train.bin", "train.u32.bin", "train.u32", "u32"})
    write_file(folder / name, std::string(8, '\1'));
  CHECK(type_of(nanogpt(folder / "train.bin")) == "u16");
  CHECK(type_of(nanogpt(folder / "train.u32.bin")) == "u32");
  CHECK(type_of(nanogpt(folder / "train.u32")) == "u32");
  CHECK(type_of(nanogpt(folder / "u32")) == "u16");
  CHECK_THAT(error_of<UserError>([&] { nanogpt(folder / "u32", "int"); }), Contains("'int'") && Contains("u16"));
  write_file(folder / "a.bin", std::string(8, '\1'));
  CHECK(nanogpt(folder / "a.bin", "u32").token_count() == 2);
}

TEST_CASE("a file that is no token file is refused with its path and the rule") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& name) { return error_of<UserError>([&] { nanogpt(folder / name); }); };
  CHECK_THAT(refused("none.bin"), Contains("none.bin") && Contains("No such file") && Contains("`strata data pack`"));
  write_file(folder / "empty.bin", "");
  CHECK_THAT(refused("empty.bin"), Contains("empty.bin") && Contains("is empty"));
  write_file(folder / "odd.bin", "abc");
  CHECK_THAT(refused("odd.bin"), Contains("odd.bin") && Contains("3 bytes") && Contains("u16"));
  write_file(folder / "odd.u32", "abcdef");
  CHECK_THAT(refused("odd.u32"), Contains("6 bytes") && Contains("u32"));
  std::filesystem::create_directory(folder / "folder.bin");
  CHECK_THAT(refused("folder.bin"), Contains("is a folder"));
  REQUIRE(::mkfifo((folder / "pipe.bin").c_str(), 0600) == 0);
  CHECK_THAT(refused("pipe.bin"), Contains("not a regular file"));  // and does not hang
  write_file(folder / "llmc.bin", bytes<std::uint32_t>({20240520, 1, 2}) + std::string(1012, '\0') + "abcd");
  CHECK_THAT(refused("llmc.bin"), Contains("llm.c"));
}

TEST_CASE("samples: floor((tokens - 1) / seq_len), and at least one") {
  const TemporaryFolder folder;
  write_file(folder / "a.bin", std::string(2 * 9, '\0'));
  const TokenSource file = nanogpt(folder / "a.bin");
  CHECK(file.sample_count(1) == 8);
  CHECK(file.sample_count(3) == 2);
  CHECK(file.sample_count(4) == 2);
  CHECK(file.sample_count(8) == 1);
  CHECK_THAT(error_of<UserError>([&] { file.sample_count(9); }), Contains("9 tokens") && Contains("10"));
}

TEST_CASE("an id outside the vocabulary is found, the first of them, across blocks") {
  const TemporaryFolder folder;
  std::string content(2 * 1'500'000, '\0');
  content[2 * 700'001] = '\x10';        // id 16
  content[2 * 1'200'000 + 1] = '\x01';  // id 256
  write_file(folder / "a.bin", content);
  const TokenSource file = nanogpt(folder / "a.bin");
  CHECK_NOTHROW(file.check_vocabulary(257));
  CHECK_THAT(error_of<UserError>([&] { file.check_vocabulary(256); }), Contains("token 1200000 has id 256"));
  CHECK_THAT(error_of<UserError>([&] { file.check_vocabulary(16); }),
             Contains("token 700001 has id 16") && Contains("0 to 15"));
  write_file(folder / "a.u32", bytes<std::uint32_t>({5, 4'000'000'000}));
  const TokenSource wide = nanogpt(folder / "a.u32");
  CHECK_NOTHROW(wide.check_vocabulary(4'000'000'001));
  CHECK_THAT(error_of<UserError>([&] { wide.check_vocabulary(50304); }), Contains("token 1 has id 4000000000"));
}

TEST_CASE("u32 tokens that only a name would make u16 are not read as such") {
  const TemporaryFolder folder;
  std::string wide, ids;
  for (std::uint32_t id = 0; id < 100; ++id) {
    wide += bytes<std::uint32_t>({id % 7});
    ids += bytes<std::uint16_t>({static_cast<std::uint16_t>(id % 7), static_cast<std::uint16_t>(id == 40 ? 1 : 0)});
  }
  write_file(folder / "wide.bin", wide);
  write_file(folder / "ids.bin", ids);
  write_file(folder / "zeros.bin", std::string(400, '\0'));
  CHECK_THAT(
      error_of<UserError>([&] { open_tokens("nanogpt", folder / "wide.bin"); }),
      Contains("wide.bin: every second token is 0, of 200 sampled ones") && Contains("token_type") && Contains("u32"));
  CHECK(nanogpt(folder / "wide.bin", "u32").token_count() == 100);
  CHECK(nanogpt(folder / "wide.bin", "u16").token_count() == 200);  // as it was said
  CHECK(open_tokens("nanogpt", folder / "ids.bin").token_count() == 200);
  CHECK(open_tokens("nanogpt", folder / "zeros.bin").token_count() == 200);
}

namespace {

// Ids as texts have them: small ones often.
template <typename Token>
std::string drawn_ids(std::size_t count, double largest, std::uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::vector<Token> ids(count);
  for (Token& id : ids) id = static_cast<Token>(std::pow(largest, static_cast<double>(random()) / 4294967296.0) - 1);
  return {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(Token)};
}

}  // namespace

TEST_CASE("a file of another type than its name says is refused, from 64 numbers on") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& name, const std::string& content) {
    write_file(folder / name, content);
    const std::string text = error_of<UserError>([&] { nanogpt(folder / name); });
    CHECK_THAT(text, Contains(name + ": ") && Contains("token_type"));
    return text;
  };
  const auto read = [&](const std::string& name, const std::string& content) {
    write_file(folder / name, content);
    return nanogpt(folder / name).token_count();
  };
  for (const std::size_t count : {64u, 100u, 5'000u, 50'000u}) {
    const auto tokens = static_cast<std::int64_t>(count);
    for (const double vocabulary : {70'000.0, 128'256.0, 151'936.0, 262'144.0}) {
      CAPTURE(count, vocabulary);
      const std::string wide = drawn_ids<std::uint32_t>(count, vocabulary);
      CHECK_THAT(refused("a.bin", wide), Contains("as when u32 tokens are read as u16"));
      CHECK(read("a.u32.bin", wide) == tokens);
      CHECK_THAT(refused("a.bin", drawn_ids<std::uint64_t>(count, vocabulary)), Contains("as in tokens of 8 bytes"));
      CHECK_THAT(refused("a.u32.bin", drawn_ids<std::uint64_t>(count, vocabulary)),
                 Contains("as in tokens of 8 bytes"));
    }
    for (const double vocabulary : {60.0, 256.0, 50'257.0, 65'536.0}) {
      for (std::uint32_t seed = 1; seed <= (count > 1'000 ? 2 : 20); ++seed) {
        CAPTURE(count, vocabulary, seed);
        const std::string narrow = drawn_ids<std::uint16_t>(count, vocabulary, seed);
        CHECK(read("a.bin", narrow) == tokens);
        CHECK(read("a.u32.bin", drawn_ids<std::uint32_t>(count, vocabulary, seed)) == tokens);
        CHECK_THAT(refused("a.u32.bin", narrow), Contains("as when u16 tokens are read as u32"));
      }
    }
  }
  // After a begin of zeros, too.
  CHECK_THAT(refused("a.bin", std::string(100'000, '\0') + drawn_ids<std::uint32_t>(100'000, 128'256.0)),
             Contains("u32"));
}

TEST_CASE("regular tokens are of the type that the name says") {
  const TemporaryFolder folder;
  for (const std::uint16_t period : {2, 3, 7, 50, 64, 257, 1000}) {
    for (const std::uint16_t begin : {0, 1, 300}) {
      std::string content;
      for (std::uint16_t index = 0; index < 5'000; ++index)
        content += bytes<std::uint16_t>({static_cast<std::uint16_t>(begin + index % period)});
      write_file(folder / "a.bin", content);
      CAPTURE(period, begin);
      CHECK(nanogpt(folder / "a.bin").token_count() == 5'000);
    }
  }
}

TEST_CASE("each file of a pattern has the type that its own name says, and all have one") {
  const TemporaryFolder folder;
  for (const char* name : {"shard_0.u32.bin", "shard_1.u32.bin"})
    write_file(folder / name, drawn_ids<std::uint32_t>(1'000, 128'256.0));
  for (const char* pattern : {"shard_*.bin", "shard_*.u32.bin", "shard_*"}) {
    CHECK(nanogpt(folder / pattern).token_count() == 2'000);
    CHECK(type_of(nanogpt(folder / pattern)) == "u32");
  }
  write_file(folder / "shard_2.bin", drawn_ids<std::uint16_t>(1'000, 50'257.0));
  CHECK_THAT(error_of<UserError>([&] { nanogpt(folder / "shard_*.bin"); }),
             Contains("shard_2.bin: its tokens are u16") && Contains("shard_0.u32.bin are u32"));
}

TEST_CASE("a file cut while it is in use is an error and not the end of the process") {
  const TemporaryFolder folder;
  write_file(folder / "a.bin", std::string(3 << 20, '\1'));
  const TokenSource file = nanogpt(folder / "a.bin");
  std::filesystem::resize_file(folder / "a.bin", 4096);
  std::vector<std::int64_t> tokens(10);
  CHECK_THAT(error_of<EnvironmentError>([&] { file.copy(1'000'000, 10, tokens.data()); }),
             Contains("was truncated from 3145728 to 4096"));
  CHECK_THAT(error_of<EnvironmentError>([&] { file.check_vocabulary(65536); }), Contains("was truncated"));
}
