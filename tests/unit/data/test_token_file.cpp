#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <strata/error.hpp>

#include <cmath>
#include <csignal>
#include <vector>

#include "catch.hpp"
#include "data/file.hpp"
#include "tools/data/token_statistics.hpp"
#include "unit/data/open_tokens.hpp"
#include "unit/data/scratch.hpp"

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
  const ScratchFolder folder;
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
  const ScratchFolder folder;
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
  const ScratchFolder folder;
  const auto refused = [&](const std::string& name) { return error_of<UserError>([&] { nanogpt(folder / name); }); };
  CHECK_THAT(refused("none.bin"), Contains("none.bin") && Contains("No such file"));
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
  const ScratchFolder folder;
  write_file(folder / "a.bin", std::string(2 * 9, '\0'));
  const TokenSource file = nanogpt(folder / "a.bin");
  CHECK(file.sample_count(1) == 8);
  CHECK(file.sample_count(3) == 2);
  CHECK(file.sample_count(4) == 2);
  CHECK(file.sample_count(8) == 1);
  CHECK_THAT(error_of<UserError>([&] { file.sample_count(9); }), Contains("9 tokens") && Contains("10"));
}

TEST_CASE("an id outside the vocabulary is found, the first of them, across blocks") {
  const ScratchFolder folder;
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
  const ScratchFolder folder;
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
      Contains("wide.bin: every second of its first 200 tokens is 0") && Contains("token_type") && Contains("u32"));
  CHECK(nanogpt(folder / "wide.bin", "u32").token_count() == 100);
  CHECK(nanogpt(folder / "wide.bin", "u16").token_count() == 200);  // as it was said
  CHECK(open_tokens("nanogpt", folder / "ids.bin").token_count() == 200);
  CHECK(open_tokens("nanogpt", folder / "zeros.bin").token_count() == 200);
}

TEST_CASE("statistics: range, distinct ids and unigram entropy") {
  const ScratchFolder folder;
  write_file(folder / "a.bin", bytes<std::uint16_t>({7, 7, 3, 9}));
  const TokenStatistics statistics = statistics_of(nanogpt(folder / "a.bin"));
  CHECK(statistics.smallest == 3);
  CHECK(statistics.largest == 9);
  CHECK(statistics.distinct == 3);
  CHECK(statistics.unigram_entropy == Approx(1.5 * std::log(2.0)));
  write_file(folder / "b.u32", bytes<std::uint32_t>({70'000, 3'000'000'000}));
  const TokenStatistics wide = statistics_of(nanogpt(folder / "b.u32"));
  CHECK(wide.smallest == 70'000);
  CHECK(wide.largest == 3'000'000'000);
  CHECK(wide.unigram_entropy == Approx(std::log(2.0)));
}

TEST_CASE("a file cut while it is in use is an error and not the end of the process") {
  const ScratchFolder folder;
  write_file(folder / "a.bin", std::string(3 << 20, '\1'));
  const TokenSource file = nanogpt(folder / "a.bin");
  std::filesystem::resize_file(folder / "a.bin", 4096);
  std::vector<std::int64_t> tokens(10);
  CHECK_THAT(error_of<EnvironmentError>([&] { file.copy(1'000'000, 10, tokens.data()); }),
             Contains("was cut from 3145728 to 4096"));
  CHECK_THAT(error_of<EnvironmentError>([&] { file.check_vocabulary(65536); }), Contains("was cut"));
}

TEST_CASE("an output file appears whole or not at all") {
  const ScratchFolder folder;
  {
    OutputFile dropped(folder / "a");
    dropped.write_at(0, "abc", 3);
    CHECK_FALSE(std::filesystem::exists(folder / "a"));
  }
  CHECK(folder.names() == 0);
  OutputFile kept(folder / "a");
  kept.write_at(3, "def", 3);
  kept.write_at(0, "abc", 3);
  kept.finish();
  CHECK(read_file(folder / "a") == "abcdef");
  CHECK(folder.names() == 1);
  CHECK_THAT(error_of<UserError>([&] { OutputFile again(folder / "a"); }), Contains("exists already"));
  OutputFile replacing(folder / "a", Existing::Replace);
  replacing.write_at(0, "x", 1);
  CHECK(read_file(folder / "a") == "abcdef");
  replacing.finish();
  CHECK(read_file(folder / "a") == "x");
  CHECK_THAT(error_of<UserError>([&] { OutputFile there(folder / "none/a"); }), Contains("does not exist"));
  CHECK_THAT(error_of<UserError>([&] { OutputFile there(folder.path().string(), Existing::Replace); }),
             Contains("is a folder"));
  OutputFile late(folder / "b");
  write_file(folder / "b", "theirs");
  CHECK_THAT(error_of<UserError>([&] { late.finish(); }), Contains("made by someone else"));
  CHECK(read_file(folder / "b") == "theirs");
}

TEST_CASE("a full disk is an error that leaves nothing behind") {
  const ScratchFolder folder;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};  // the kernel refuses what goes past it, as a full disk does
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  std::string reserving, writing;
  try {
    OutputFile file(folder / "a");
    file.reserve(1 << 20);
  } catch (const EnvironmentError& error) {
    reserving = error.what();
  }
  try {
    OutputFile file(folder / "a");
    const std::string much(1 << 20, 'x');
    file.write_at(0, much.data(), much.size());
  } catch (const EnvironmentError& error) {
    writing = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK_THAT(reserving, Contains("reserving 1.00 MiB failed") && Contains("free some space"));
  CHECK_THAT(writing, Contains("writing") && Contains("free some space"));
  CHECK(folder.names() == 0);
}
