#include <sys/resource.h>
#include <strata/error.hpp>

#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>

#include "catch.hpp"
#include "error_of.hpp"
#include "temporary_folder.hpp"
#include "tools/data/data_command.hpp"
#include "unit/data/token_bytes.hpp"

using namespace strata::cli;
using strata::UserError;

namespace {

std::string pack(const DataPackOptions& options) {
  std::ostringstream out, err;
  const int status = data_pack(options, out, err);  // outside of REQUIRE, which would swallow its errors
  REQUIRE(status == 0);
  return out.str();
}

strata::plugins::PluginRegistry& registry() {
  static strata::plugins::PluginRegistry plugins(
      std::vector<strata::plugins::SearchFolder>{{PLUGIN_FOLDER, "the test"}});
  return plugins;
}

}  // namespace

TEST_CASE("text files become bytes as tokens, back to back, in a fixed order") {
  const TemporaryFolder folder;
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
  CHECK_THAT(said, Contains("6 tokens (u16") && Contains("5 files") && Contains("3 other files"));
  pack({{folder / "text/c.txt"}, folder / "wide.bin", "u32", false});
  CHECK(read_file(folder / "wide.bin") == std::string("c\0\0\0", 4));
}

TEST_CASE("an existing output stays unless --force, and is never its own input") {
  const TemporaryFolder folder;
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
  const TemporaryFolder folder;
  write_file(folder / "empty", "");
  const auto refused = [&](const std::string& input) {
    return error_of<UserError>([&] { pack({{input}, folder / "out.bin", "", false}); });
  };
  CHECK_THAT(refused(folder / "none"), Contains("none") && Contains("No such file"));
  CHECK_THAT(refused(folder / "empty"), Contains("nothing to pack"));
  CHECK_THAT(refused(folder.path().string()), Contains("nothing to pack"));
  CHECK(folder.names() == 1);
}

TEST_CASE("packing onto a full disk leaves nothing behind") {
  const TemporaryFolder folder;
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

TEST_CASE("data info describes a token file") {
  const TemporaryFolder folder;
  write_file(folder / "a.bin", bytes<std::uint16_t>({7, 7, 3, 9, 7, 7, 3, 9}));
  std::ostringstream out, err;
  REQUIRE(data_info(registry(), {{folder / "a.bin"}, 3, "text"}, out, err) == 0);
  CHECK_THAT(out.str(), Contains("8 (u16") && Contains("2 of seq_len 3") && Contains("3 to 9, 3 distinct") &&
                            Contains("1.039721"));
  std::ostringstream json;
  REQUIRE(data_info(registry(), {{folder / "a.bin"}, 3, "json"}, json, err) == 0);
  const auto object = nlohmann::json::parse(json.str());
  CHECK(object["tokens"] == 8);
  CHECK(object["samples"] == 2);
  CHECK(object["unigram_entropy"].get<double>() == Approx(1.0397207708));
  CHECK(err.str().empty());
  std::ostringstream alone;  // without --seq-len
  REQUIRE(data_info(registry(), {{folder / "a.bin"}, {}, "text"}, alone, err) == 0);
  CHECK_THAT(alone.str(), Contains("8 (u16") && Contains("3 to 9, 3 distinct") && !Contains("samples"));
  alone.str("");
  REQUIRE(data_info(registry(), {{folder / "a.bin"}, {}, "json"}, alone, err) == 0);
  CHECK(!nlohmann::json::parse(alone.str()).contains("samples"));
  CHECK_THAT(error_of<UserError>([&] {
               data_info(registry(), {{folder / "a.bin"}, 8, "text"}, out, err);
             }),
             Contains("seq_len 8"));
  CHECK_THAT(error_of<UserError>([&] {
               data_info(registry(), {{folder / "a.bin"}, 0, "text"}, out, err);
             }),
             Contains("--seq-len is 0"));
}

TEST_CASE("data info knows a file's format by itself or is told") {
  const TemporaryFolder folder;
  write_file(folder / "a.bin", llmc_bytes<std::uint16_t>(20240520, 1, {7, 7, 3, 9}));
  MegatronBytes().write(folder / "m");
  const auto info = [&](const DataFile& file) {
    std::ostringstream out, err;
    data_info(registry(), {file, 3, "json"}, out, err);
    return nlohmann::json::parse(out.str());
  };
  CHECK(info({folder / "a.bin"})["plugin"] == "data/llm_c");
  CHECK(info({folder / "m"})["plugin"] == "data/megatron");
  CHECK(info({folder / "m"})["documents"] == 2);
  CHECK(info({folder / "m.bin", "nanogpt", {"token_type=u32"}})["tokens"] == 4);
  CHECK_THAT(error_of<UserError>([&] { info({folder / "a.bin", "nanogpt"}); }), Contains("use the data plugin llm_c"));
  CHECK_THAT(error_of<UserError>([&] {
               info({folder / "m.bin", "", {"token_type=u16"}});
             }),
             Contains("--set token_type=u16") && Contains("data/megatron has no such option"));
}

TEST_CASE("data show: samples in the order of a run, bytes as text") {
  const TemporaryFolder folder;
  write_file(folder / "a.bin", bytes<std::uint16_t>({'a', '\n', 'c', 'd', 'e', 0xe9, 'g'}));
  const auto show = [](const DataShowOptions& options) {
    std::ostringstream out;
    data_show(registry(), options, out);
    return out.str();
  };
  DataShowOptions options{{folder / "a.bin"}, 3};
  CHECK_THAT(show(options), Contains("position 0: sample 0") && Contains(" 97 10 99 100\n") && Contains("\"a\\ncd\""));
  options.position = 5;
  CHECK_THAT(error_of<UserError>([&] { show(options); }),
             Contains("a.bin: --sample is 5 and --count 1, and the order has 2 samples, 0 to 1"));
  options.position = 1;
  options.count = 2;
  CHECK_THAT(error_of<UserError>([&] { show(options); }),
             Contains("--sample is 1 and --count 2, and the order has 2 samples, 0 to 1"));
  options.position = 5;
  options.count = 1;
  options.samples = 6;  // the order goes on in the next epoch
  options.format = "json";
  CHECK(nlohmann::json::parse(show(options)) ==
        nlohmann::json({{"position", 5}, {"sample", 1}, {"tokens", {100, 101, 0xe9, 103}}}));
  options.samples = 0;
  options.order = "own";
  CHECK_THAT(error_of<UserError>([&] { show(options); }), Contains("data/nanogpt has no order of its own"));
  MegatronBytes().write(folder / "m");
  options.file.path = folder / "m";
  CHECK_THAT(error_of<UserError>([&] { show(options); }), Contains("the order has 2 samples, 0 to 1"));
  options.position = 1;
  CHECK(nlohmann::json::parse(show(options))["tokens"].size() == 4);
  options.count = 0;
  CHECK_THROWS_AS(show(options), UserError);
  options.seq_len = 0;
  CHECK_THAT(error_of<UserError>([&] { show(options); }), Contains("--seq-len is 0"));
}

TEST_CASE("data info and show: samples of one document each") {
  const TemporaryFolder folder;
  write_file(folder / "a.bin", bytes<std::uint16_t>({'a', 'b', 0, 'c', 'd', 'e', 'f', 0, 0, 'g', 'h'}));
  std::ostringstream out, err;
  REQUIRE(data_info(registry(), {{folder / "a.bin"}, 3, "text", 0}, out, err) == 0);
  CHECK_THAT(out.str(), Contains("4 of seq_len 3, each of one document; 7 targets count, 58.3%"));
  std::ostringstream json;
  REQUIRE(data_info(registry(), {{folder / "a.bin"}, 3, "json", 0}, json, err) == 0);
  const auto object = nlohmann::json::parse(json.str());
  CHECK((object["samples"] == 4 && object["targets"] == 7 && object["document_end"] == 0));
  CHECK_THAT(error_of<UserError>([&] {
               data_info(registry(), {{folder / "a.bin"}, 3, "text", 5}, out, err);
             }),
             Contains("token 5, does not occur"));

  DataShowOptions options{{folder / "a.bin"}, 3};
  options.document_end = 0;
  const auto show = [&] {
    std::ostringstream shown;
    data_show(registry(), options, shown);
    return shown.str();
  };
  CHECK_THAT(show(), Contains("sample 0, 3 inputs") && Contains("; 2 targets count\n  97 98 0 0\n"));
  options.position = 2;
  options.format = "json";
  CHECK(nlohmann::json::parse(show()) ==
        nlohmann::json({{"position", 2}, {"sample", 2}, {"tokens", {'f', 0, 0, 0}}, {"targets", 1}}));
  options.order = "own";
  CHECK_THAT(error_of<UserError>(show), Contains("--document-end is given and --order is own"));
}

TEST_CASE("JSON lines: the text under a key, an end behind each document") {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "in");
  write_file(folder / "in/b.jsonl", "{\"text\": \"x\\ty\"}\r\n\n  \n{\"id\": 1, \"text\": \"\\u00e9\"}");
  write_file(folder / "in/a.txt", "{}");
  const auto packed = [&](const std::string& end) {
    DataPackOptions options{{folder / "in"}, folder / "out.bin", "", true};
    options.document_end = end;
    CHECK_THAT(pack(options), Contains("2 files, 3 documents"));
    return read_file(folder / "out.bin");
  };
  CHECK(packed("auto") == bytes<std::uint16_t>({'{', '}', 'x', '\t', 'y', 0, 0xc3, 0xa9, 0}));
  CHECK(packed("none") == bytes<std::uint16_t>({'{', '}', 'x', '\t', 'y', 0xc3, 0xa9}));
  CHECK(packed("50256") == bytes<std::uint16_t>({'{', '}', 50256, 'x', '\t', 'y', 50256, 0xc3, 0xa9, 50256}));
  const auto refused = [&](const std::string& name, const std::string& content, const std::string& end = "auto") {
    write_file(folder / name, content);
    DataPackOptions options{{folder / name}, folder / "none.bin", "", false};
    options.document_end = end;
    return error_of<UserError>([&] { pack(options); });
  };
  const std::string good = "{\"text\": \"x\"}\n";
  CHECK_THAT(refused("a.jsonl", good + "{\"text\": \"x\"\n"), Contains("a.jsonl:2:13: is not valid JSON"));
  CHECK_THAT(refused("a.jsonl", good + good + "[]"), Contains("a.jsonl:3: holds array"));
  CHECK_THAT(refused("a.jsonl", "{\"body\": \"x\"}"),
             Contains("a.jsonl:1: has no key 'text'") && Contains("(there is: body)"));
  CHECK_THAT(refused("a.jsonl", "{\"text\": null}"), Contains("a.jsonl:1: its 'text' is null"));
  CHECK_THAT(refused("a.jsonl", "{\"text\": \"\xff\"}"), Contains("a.jsonl:1:11: is not valid JSON"));
  CHECK_THAT(refused("a.jsonl", std::string(100'000, '[')), Contains("nested deeper than 64 levels"));
  CHECK_THAT(refused("a.jsonl", "{\"text\": \"\"}", "none"), Contains("nothing to pack"));
  CHECK_THAT(refused("a.jsonl.zst", "\x28\xb5\x2f\xfd and more"), Contains("is compressed by zstd; unpack it first"));
  CHECK_THAT(refused("a.txt", "x", "65536"), Contains("is 65536") && Contains("u32"));
  CHECK_THAT(refused("a.txt", "x", "-1"), Contains("--document-end is '-1'"));
  CHECK_THAT(refused("a.txt", "x", "0x"), Contains("--document-end is '0x'"));
  CHECK_FALSE(std::filesystem::exists(folder / "none.bin"));
}

TEST_CASE("JSON lines of another name are documents if their key is given, and refused if not") {
  const TemporaryFolder folder;
  const std::string lines = "\n{\"text\": \"ab\"}\n{\"text\": \"c\"}\n";
  const auto pack_as = [&](const std::string& name, const std::string& content, const std::string& key, bool as_is) {
    write_file(folder / name, content);
    DataPackOptions options{{folder / name}, folder / "out.bin", "", true};
    options.jsonl_key = key;
    options.as_is = as_is;
    pack(options);
    return std::filesystem::file_size(folder / "out.bin") / 2;
  };
  const auto refused = [&](const std::string& name, const std::string& content, const std::string& key = "") {
    return error_of<UserError>([&] { pack_as(name, content, key, false); });
  };
  for (const char* name : {"a.json", "a.ndjson", "a.txt", "a"}) {
    CHECK_THAT(refused(name, lines), Contains("has JSON objects as lines") && Contains("--jsonl-key KEY"));
    CHECK(pack_as(name, lines, "text", false) == 5);
    CHECK(pack_as(name, lines, "", true) == lines.size());
    CHECK(pack_as(name, "{\n  \"text\": 5\n}\n", "", false) == 16);  // an object that is no line
    CHECK(pack_as(name, "{\"a\", \"b\"}\n", "", false) == 11);       // no JSON
  }
  CHECK(pack_as("a.jsonl", lines, "", true) == lines.size());
  CHECK_THAT(refused("a.json", "[\n {\"text\": \"ab\"}]"), Contains("is a JSON list of objects") && Contains("jq -c"));
  CHECK_THAT(refused("a.txt", "text\n", "text"), Contains("a.txt:1"));
  const std::string long_line = "{\"text\": \"" + std::string(200'000, 'x') + "\"}\n";
  CHECK_THAT(refused("a.json", long_line), Contains("has JSON objects as lines"));
  CHECK(pack_as("a.json", long_line, "text", false) == 200'001);
}

TEST_CASE("in a folder two lines of objects are JSON lines, and one is a file of source code") {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "in");
  write_file(folder / "in/a.json", "{\"text\": \"ab\"}\n");
  write_file(folder / "in/b.txt", "c");
  write_file(folder / "in/z.gz", "\x1f\x8b\x08\x01 compressed text");
  DataPackOptions options{{folder / "in"}, folder / "out.bin", "", true};
  CHECK_THAT(pack(options), Contains("16 tokens") && Contains("1 other file "));
  options.jsonl_key = "text";
  CHECK_THAT(pack(options), Contains("4 tokens"));
  options.jsonl_key = "";
  for (const std::size_t length : {std::size_t{1}, std::size_t{100'000}}) {
    const std::string line = "{\"text\": \"" + std::string(length, 'x') + "\"}\n";
    write_file(folder / "in/a.json", line + "\n" + line);
    CHECK_THAT(error_of<UserError>([&] { pack(options); }), Contains("a.json: has JSON objects as lines"));
  }
  std::filesystem::remove(folder / "in/a.json");
  options.jsonl_key = "text";
  CHECK_THAT(error_of<UserError>([&] { pack(options); }),
             Contains("--jsonl-key is given, and no input has JSON lines"));
}

TEST_CASE("an input that is no text in UTF-8 is refused, or packed as it is") {
  const TemporaryFolder folder;
  const std::string utf16 = std::string("\xff\xfe", 2) + bytes<std::uint16_t>({'t', 'e', 'x', 't', '.', '\n'});
  const std::string gzip("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03 and what follows", 27);
  for (const auto& [content, words] :
       {std::pair(utf16, "is text in UTF-16; iconv"), std::pair(gzip, "is compressed by gzip")}) {
    write_file(folder / "a.txt", content);
    DataPackOptions options{{folder / "a.txt"}, folder / "out.bin", "", true};
    CHECK_THAT(error_of<UserError>([&] { pack(options); }), Contains(std::string(words).substr(0, 17)));
    options.as_is = true;
    pack(options);
    CHECK(std::filesystem::file_size(folder / "out.bin") == 2 * content.size());
  }
}
