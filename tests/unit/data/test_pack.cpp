#include <sys/resource.h>
#include <strata/error.hpp>

#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>

#include "catch.hpp"
#include "cli/data_command.hpp"
#include "unit/data/scratch.hpp"

using namespace strata::cli;
using strata::UserError;

namespace {

std::string pack(const DataPackOptions& options) {
  std::ostringstream out, err;
  const int status = data_pack(options, out, err);  // outside of REQUIRE, which would swallow its errors
  REQUIRE(status == 0);
  return out.str();
}

}  // namespace

TEST_CASE("text files become bytes as tokens, back to back, in a fixed order") {
  const ScratchFolder folder;
  std::filesystem::create_directories(folder / "text/b");
  std::filesystem::create_directories(folder / "text/.git");
  write_file(folder / "text/b/2.txt", "\xff");
  write_file(folder / "text/c.txt", "c");
  write_file(folder / "text/a.txt", "a\n");
  write_file(folder / "text/.hidden", "hidden");
  write_file(folder / "text/.git/x", "hidden");
  write_file(folder / "text/image", std::string("\x89\x00\x01", 3));
  write_file(folder / "text/empty", "");
  write_file(folder / "first", std::string("\0z", 2));  // named, so packed although no text
  std::filesystem::create_symlink(folder / "first", folder / "text/link");
  const std::string said = pack({{folder / "first", folder / "text"}, folder / "out.bin", "", false});
  const std::uint16_t wanted[] = {0, 'z', 'a', '\n', 0xff, 'c'};
  CHECK(read_file(folder / "out.bin") == std::string(reinterpret_cast<const char*>(wanted), sizeof wanted));
  CHECK_THAT(said, Contains("6 tokens (u16") && Contains("5 files") && Contains("3 others"));
  pack({{folder / "text/c.txt"}, folder / "wide.bin", "u32", false});
  CHECK(read_file(folder / "wide.bin") == std::string("c\0\0\0", 4));
}

TEST_CASE("an existing output stays unless --force, and is never its own input") {
  const ScratchFolder folder;
  write_file(folder / "a.txt", "abc");
  write_file(folder / "out.bin", "precious");
  const DataPackOptions options{{folder.path().string()}, folder / "out.bin", "", false};
  CHECK_THAT(error_of<UserError>([&] { pack(options); }), Contains("exists already"));
  CHECK(read_file(folder / "out.bin") == "precious");
  DataPackOptions forced = options;
  forced.force = true;
  pack(forced);
  CHECK(read_file(folder / "out.bin") == std::string("a\0b\0c\0", 6));
  forced.inputs = {folder / "out.bin"};
  CHECK_THAT(error_of<UserError>([&] { pack(forced); }), Contains("is the output itself"));
  CHECK(folder.names() == 2);
}

TEST_CASE("inputs that hold nothing or are not there are refused") {
  const ScratchFolder folder;
  write_file(folder / "empty", "");
  const auto refused = [&](const std::string& input) {
    return error_of<UserError>([&] { pack({{input}, folder / "out.bin", "", false}); });
  };
  CHECK_THAT(refused(folder / "none"), Contains("none") && Contains("No such file"));
  CHECK_THAT(refused(folder / "empty"), Contains("nothing to pack"));
  CHECK_THAT(refused(folder.path().string()), Contains("nothing to pack"));
  CHECK_THAT(error_of<UserError>([&] { pack({{folder / "empty"}, folder / "o", "u8", false}); }), Contains("'u8'"));
  CHECK(folder.names() == 1);
}

TEST_CASE("packing onto a full disk leaves nothing behind") {
  const ScratchFolder folder;
  write_file(folder / "a.txt", std::string(10'000, 'x'));
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  std::string text;
  try {
    std::ostringstream out, err;
    data_pack({{folder / "a.txt"}, folder / "out.bin", "", false}, out, err);
  } catch (const strata::EnvironmentError& error) {
    text = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK_THAT(text, Contains("out.bin") && Contains("failed"));
  CHECK(folder.names() == 1);
}

TEST_CASE("data info says what a token file holds") {
  const ScratchFolder folder;
  write_file(folder / "a.bin", bytes<std::uint16_t>({7, 7, 3, 9, 7, 7, 3, 9}));
  std::ostringstream out, err;
  REQUIRE(data_info({folder / "a.bin", 3, "", "text"}, out, err) == 0);
  CHECK_THAT(out.str(), Contains("8 (u16") && Contains("2 of seq_len 3") && Contains("3 to 9, 3 distinct") &&
                            Contains("1.039721"));
  std::ostringstream json;
  REQUIRE(data_info({folder / "a.bin", 3, "", "json"}, json, err) == 0);
  const auto object = nlohmann::json::parse(json.str());
  CHECK(object["tokens"] == 8);
  CHECK(object["samples"] == 2);
  CHECK(object["unigram_entropy"].get<double>() == Approx(1.0397207708));
  CHECK(err.str().empty());
  CHECK_THAT(error_of<UserError>([&] {
               data_info({folder / "a.bin", 8, "", "text"}, out, err);
             }),
             Contains("seq_len 8"));
  CHECK_THAT(error_of<UserError>([&] {
               data_info({folder / "a.bin", 0, "", "text"}, out, err);
             }),
             Contains("--seq-len is 0"));
  CHECK_THAT(error_of<UserError>([&] { data_info({folder / "a.bin", 1, "", "xml"}, out, err); }), Contains("'xml'"));
}
