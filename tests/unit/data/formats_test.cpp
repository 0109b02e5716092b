#include <strata/error.hpp>

#include <functional>
#include <random>
#include <sstream>
#include <vector>

#include "catch.hpp"
#include "error_of.hpp"
#include "megatron/megatron_index.hpp"
#include "temporary_folder.hpp"
#include "tools/data/pack.hpp"
#include "tools/data/token_statistics.hpp"
#include "unit/data/open_tokens.hpp"
#include "unit/data/token_bytes.hpp"

using namespace strata::cli;
using namespace strata::data;
using strata::EnvironmentError;
using strata::UserError;
using Ids = std::vector<std::int64_t>;

namespace {

Ids all_of(const TokenSource& source) {
  Ids ids(static_cast<std::size_t>(source.token_count()));
  source.copy(0, source.token_count(), ids.data());
  return ids;
}

// The plugin whose format the file shows, or nanogpt, which reads any.
std::string recognized(const std::string& path) {
  for (const char* name : {"megatron", "llm_c"})
    if (data_plugin(name).recognizes(path)) return name;
  return "nanogpt";
}

const std::vector<std::uint16_t> narrow{0, 65535, 50256, 7};
const std::vector<std::uint32_t> wide{0, 4'000'000'000, 128'000};

}  // namespace

TEST_CASE("llm.c's files: both magic numbers") {
  const TemporaryFolder folder;
  write_file(folder / "gpt2.bin", llmc_bytes(20240520, 1, narrow));
  write_file(folder / "llama3.bin", llmc_bytes(20240801, 7, wide));
  const TokenSource gpt2 = open_tokens("llm_c", folder / "gpt2.bin"),
                    llama3 = open_tokens("llm_c", folder / "llama3.bin");
  CHECK(all_of(gpt2) == Ids{0, 65535, 50256, 7});
  CHECK(gpt2.files().front().type == "u16");
  CHECK(all_of(llama3) == Ids{0, 4'000'000'000, 128'000});
  CHECK(llama3.files().front().type == "u32");
  CHECK(recognized(folder / "gpt2.bin") == "llm_c");
  CHECK(recognized(folder / "llama3.bin") == "llm_c");
  CHECK(statistics_of(llama3).largest == 4'000'000'000);
  CHECK_THAT(error_of<UserError>([&] { gpt2.check_vocabulary(50257); }), Contains("gpt2.bin: token 1 has id 65535"));
}

TEST_CASE("invalid llm.c files are refused with the reason") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& content) {
    write_file(folder / "a.bin", content);
    return error_of<UserError>([&] { open_tokens("llm_c", folder / "a.bin"); });
  };
  const std::string good = llmc_bytes(20240520, 1, narrow);
  CHECK_THAT(refused(""), Contains("a.bin: does not start with"));
  CHECK_THAT(refused(good.substr(0, 11)), Contains("does not start with"));
  CHECK_THAT(refused(good.substr(0, 1023)), Contains("holds 1023 bytes") && Contains("may be truncated"));
  CHECK_THAT(refused(good.substr(0, 1024)), Contains("holds 1024 bytes") && Contains("4 tokens") && Contains("1032"));
  CHECK_THAT(refused(good.substr(0, 1031)), Contains("holds 1031 bytes"));
  CHECK_THAT(refused(good + "x"), Contains("holds 1033 bytes"));
  CHECK_THAT(refused(llmc_bytes(20240520, 7, narrow)),
             Contains("has version 7; a file with the magic number 20240520 must have version 1"));
  CHECK_THAT(refused(llmc_bytes(20240801, 1, wide)),
             Contains("has version 1; a file with the magic number 20240801 must have version 7"));
  CHECK_THAT(refused(llmc_bytes(20240802, 1, wide)), Contains("does not start with"));
  CHECK_THAT(refused(llmc_bytes(20240522, 1, narrow)), Contains("holds multiple-choice questions"));
  CHECK_THAT(refused(llmc_bytes(20240326, 3, narrow)), Contains("holds weights"));
  CHECK_THAT(refused(llmc_bytes<std::uint16_t>(20240520, 1, {})), Contains("holds no tokens"));
  std::string negative = good;
  negative.replace(8, 4, bytes<std::int32_t>({-4}));
  CHECK_THAT(refused(negative), Contains("gives -4 tokens"));
  CHECK_THAT(error_of<UserError>([&] { open_tokens("llm_c", folder / "none.bin"); }), Contains("No such file"));
}

TEST_CASE("several files are one row of tokens, in the order of their names") {
  const TemporaryFolder folder;
  write_file(folder / "part_2.bin", llmc_bytes<std::uint16_t>(20240520, 1, {5, 6, 7}));
  write_file(folder / "part_1.bin", llmc_bytes<std::uint16_t>(20240520, 1, {1, 2, 3, 4}));
  write_file(folder / "part_3.bin", llmc_bytes<std::uint16_t>(20240520, 1, {8}));
  const TokenSource source = open_tokens("llm_c", folder / "part_*.bin");
  CHECK(source.files().size() == 3);
  CHECK(all_of(source) == Ids{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(source.sample_count(3) == 2);
  for (std::int64_t first = 0; first < 8; ++first) {
    for (std::int64_t count = 0; first + count <= 8; ++count) {
      Ids ids(static_cast<std::size_t>(count) + 1, -1);
      source.copy(first, count, ids.data());
      for (std::int64_t i = 0; i < count; ++i) REQUIRE(ids[static_cast<std::size_t>(i)] == first + i + 1);
      REQUIRE(ids.back() == -1);
    }
  }
  CHECK_THROWS_AS(source.copy(7, 2, nullptr), strata::Bug);
  CHECK_THAT(error_of<UserError>([&] { source.check_vocabulary(6); }), Contains("part_2.bin: token 1 has id 6"));
  CHECK(statistics_of(source).distinct == 8);
  write_file(folder / "[x].bin", raw(narrow));  // a file of this very name is no pattern
  CHECK(all_of(open_tokens("nanogpt", folder / "[x].bin")) == Ids{0, 65535, 50256, 7});
  CHECK_THAT(error_of<UserError>([&] { open_tokens("llm_c", folder / "none_*.bin"); }),
             Contains("none_*.bin: no file matches"));
  write_file(folder / "part_4.bin", llmc_bytes(20240801, 7, wide));
  CHECK_THAT(error_of<UserError>([&] { open_tokens("llm_c", folder / "part_*.bin"); }),
             Contains("part_4.bin") && Contains("u32") && Contains("u16"));
}

TEST_CASE("Megatron's files: prefix or either name, every type of token") {
  const TemporaryFolder folder;
  MegatronBytes files;
  files.write(folder / "a");
  for (const char* name : {"a", "a.bin", "a.idx"}) {
    const TokenSource source = open_tokens("megatron", folder / name);
    CHECK(all_of(source) == Ids{10, 11, 12, 20, 21, 22, 23, 24});
    CHECK(source.facts() == std::vector<std::pair<std::string, std::int64_t>>{{"sequences", 3}, {"documents", 2}});
    CHECK(recognized(folder / name) == "megatron");
  }
  const strata::megatron::MegatronIndex index(folder / "a.idx");
  CHECK(index.length(2) == 5);
  CHECK(index.first_token(2) == 3);
  files.modes = std::string(3, '\0');
  files.write(folder / "modes");
  CHECK(open_tokens("megatron", folder / "modes").token_count() == 8);
  const auto with = [&](std::uint8_t code, const std::string& tokens, std::int64_t bytes) {
    files.code = code;
    files.tokens = tokens;
    files.offsets = {0, 3 * bytes, 3 * bytes};
    files.write(folder / "b");
    const TokenSource source = open_tokens("megatron", folder / "b");
    CHECK_THAT(error_of<UserError>([&] { source.check_vocabulary(8); }), Contains("token 7 has id -1"));
    CHECK(statistics_of(source).smallest == -1);
    return all_of(source);
  };
  const Ids ids{0, 1, 2, 3, 4, 5, 6, -1};
  CHECK(with(2, raw<std::int8_t>({0, 1, 2, 3, 4, 5, 6, -1}), 1) == ids);
  CHECK(with(3, raw<std::int16_t>({0, 1, 2, 3, 4, 5, 6, -1}), 2) == ids);
  CHECK(with(4, raw<std::int32_t>({0, 1, 2, 3, 4, 5, 6, -1}), 4) == ids);
  CHECK(with(5, raw<std::int64_t>({0, 1, 2, 3, 4, 5, 6, -1}), 8) == ids);
}

TEST_CASE("a damaged .idx file is refused with the reason") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::function<void(MegatronBytes&)>& damage) {
    MegatronBytes files;
    damage(files);
    files.write(folder / "a");
    return error_of<UserError>([&] { open_tokens("megatron", folder / "a"); });
  };
  CHECK_THAT(refused([](auto& f) { f.magic[2] = 'X'; }), Contains("a.idx: does not start with MMIDIDX"));
  CHECK_THAT(refused([](auto& f) { f.version = 2; }), Contains("has version 2"));
  CHECK_THAT(refused([](auto& f) { f.code = 9; }), Contains("type code is 9"));
  CHECK_THAT(refused([](auto& f) { f.code = 7; }), Contains("type code is 7, a floating-point type"));
  CHECK_THAT(refused([](auto& f) { f.sequences = 4; }), Contains("4 sequences and 3 document boundaries"));
  CHECK_THAT(refused([](auto& f) { f.sequences = UINT64_MAX / 12 + 2; }), Contains("truncated or damaged"));
  CHECK_THAT(refused([](auto& f) { f.boundary_count = UINT64_MAX / 8 + 1; }), Contains("truncated or damaged"));
  CHECK_THAT(refused([](auto& f) { f.modes = "x"; }), Contains("3 sequences and 3 document boundaries"));
  CHECK_THAT(refused([](auto& f) { f.lengths = {3, -1, 6}; }), Contains("sequence 1 has -1 tokens"));
  CHECK_THAT(refused([](auto& f) { f.lengths[2] = INT32_MAX; }),
             Contains("a.bin: holds 16 bytes") && Contains("a.idx gives"));
  CHECK_THAT(refused([](auto& f) { f.offsets[2] = 8; }), Contains("sequence 2 begins at byte 8") && Contains("byte 6"));
  CHECK_THAT(refused([](auto& f) { f.offsets[0] = -2; }), Contains("sequence 0 begins at byte -2"));
  CHECK_THAT(refused([](auto& f) { f.boundaries[0] = 1; }), Contains("boundary 0 is sequence 1"));
  CHECK_THAT(refused([](auto& f) { f.boundaries[1] = 4; }), Contains("boundary 1 is sequence 4"));
  CHECK_THAT(refused([](auto& f) { f.boundaries = {0, 2, 1}; }), Contains("boundary 2 is sequence 1"));
  CHECK_THAT(refused([](auto& f) { f.boundaries = {0, 1, 2}; }), Contains("end at sequence 2, but it has 3 sequences"));
  CHECK_THAT(refused([](auto& f) { f.tokens.pop_back(); }), Contains("a.bin: holds 15 bytes"));
  CHECK_THAT(refused([](auto& f) { f.tokens += "xx"; }), Contains("a.bin: holds 18 bytes"));
  CHECK_THAT(refused([](auto& f) {
               f.lengths = {};
               f.offsets = {};
               f.boundaries = {0};
               f.sequences = 0;
               f.boundary_count = 1;
             }),
             Contains("holds no sequences"));
  CHECK_THAT(refused([](auto& f) {
               f.lengths = {0, 0, 0};
               f.offsets = {0, 0, 0};
             }),
             Contains("hold no tokens"));
  MegatronBytes files;
  for (std::size_t size = 0; size < files.index().size(); ++size) {  // cut off anywhere
    write_file(folder / "a.idx", files.index().substr(0, size));
    CHECK_THAT(error_of<UserError>([&] { open_tokens("megatron", folder / "a"); }), Contains("a.idx: "));
  }
  write_file(folder / "b.idx", files.index());
  CHECK_THAT(error_of<UserError>([&] { open_tokens("megatron", folder / "b"); }), Contains("b.bin: cannot be opened"));
  CHECK_THAT(error_of<UserError>([&] { open_tokens("megatron", folder / "c"); }), Contains("c.idx: cannot be opened"));
  CHECK_THAT(error_of<UserError>([&] { open_tokens("megatron", folder / "*"); }), Contains("takes one PREFIX"));
}

TEST_CASE("a .idx or .bin file cut while it is in use is an error and not the end of the process") {
  const TemporaryFolder folder;
  const MegatronBytes files;
  for (const char* name : {"a.idx", "a.bin"}) {
    files.write(folder / "a");
    const OrderedSamples samples = own_order("megatron", folder / "a", {3, 0, 1});
    std::filesystem::resize_file(folder / name, 2);
    CHECK_THAT(error_of<EnvironmentError>([&] { sample_at(samples, 0); }), Contains(name) && Contains("was truncated"));
  }
  files.write(folder / "a");
  const OrderedSamples samples = own_order("megatron", folder / "a", {3, 0, 1});
  CHECK_THAT(error_of<UserError>([&] { sample_at(samples, samples.count()); }), Contains("raise train.steps"));
}

namespace {

// Changes some bytes, cuts or lengthens; often puts a number that is likely to hurt.
std::string damaged(std::string content, std::mt19937& random) {
  const auto edits = 1 + random() % 8 / 6;
  for (unsigned i = 0; i < edits && !content.empty(); ++i) {
    const std::size_t at = random() % std::min<std::size_t>(content.size(), random() % 2 == 0 ? 40 : content.size());
    switch (random() % 6) {
      case 0:
        content.resize(at);
        break;
      case 1:
        content.insert(at, std::string(random() % 20, static_cast<char>(random())));
        break;
      case 2: {
        constexpr std::int64_t numbers[] = {0, 1, -1, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 1 << 16};
        const std::string number =
            raw<std::int64_t>({numbers[random() % std::size(numbers)]}).substr(0, 4 << random() % 2);
        content.replace(at, std::min(number.size(), content.size() - at), number.substr(0, content.size() - at));
        break;
      }
      default:
        content[at] = static_cast<char>(random());
    }
  }
  return content;
}

// Whatever a run or a command does with a file.
void use(const std::string& format, const std::string& path, std::mt19937& random) {
  const TokenSource source = open_tokens(format, path);
  CHECK(std::ssize(all_of(source)) == source.token_count());
  CHECK(statistics_of(source).distinct >= 1);
  const auto seq_len = static_cast<std::int64_t>(1 + random() % 20);
  if (format == "megatron") {
    const auto wanted = static_cast<std::int64_t>(random() % 3 == 0 ? random() % 50 : 0);
    const OrderedSamples samples = own_order(format, path, {seq_len, wanted, random()});
    for (std::int64_t i = 0; i < samples.count(); ++i) sample_at(samples, i);
  }
  if (random() % 4 == 0) source.check_vocabulary(static_cast<std::int64_t>(random() % 70'000));
}

}  // namespace

TEST_CASE("2,000 damaged and random files are read or refused with one line") {
  const TemporaryFolder folder;
  std::mt19937 random(7);
  MegatronBytes megatron;
  const std::string jsonl =
      "{\"text\": \"one \\u00e9\"}\n{\"id\": [1, {\"x\": null}], \"text\": \"\\n\"}\n\n{\"text\": \"z\"}";
  std::int64_t good = 0, refused = 0;
  for (int i = 0; i < 2'000; ++i) {
    std::string noise(random() % 2100, '\0');
    for (char& byte : noise) byte = static_cast<char>(random());
    const bool all_noise = i % 10 == 0;
    try {
      switch (i % 4) {
        case 0:
          write_file(folder / "a.bin", all_noise ? noise : damaged(llmc_bytes(20240520, 1, narrow), random));
          use(i % 8 == 0 ? "llm_c" : recognized(folder / "a.bin"), folder / "a.bin", random);
          break;
        case 1:
          write_file(folder / "a.bin", i % 3 == 0 ? noise : damaged(llmc_bytes(20240801, 7, wide), random));
          use(i % 8 == 1 || i % 3 != 0 ? "llm_c" : "nanogpt", folder / "a.bin", random);
          break;
        case 2:
          megatron.write(folder / "m");
          if (i % 3 != 0) write_file(folder / "m.idx", all_noise ? noise : damaged(megatron.index(), random));
          if (i % 3 == 0) write_file(folder / "m.bin", damaged(megatron.tokens, random));
          use("megatron", folder / "m", random);
          break;
        default:
          write_file(folder / "a.jsonl", all_noise ? noise : damaged(jsonl, random));
          pack_text({folder / "a.jsonl"}, folder / "out", {.existing = Existing::Replace});
          CHECK(read_file(folder / "out").size() % 2 == 0);
      }
      ++good;
    } catch (const UserError& error) {
      ++refused;
      const std::string text = error.what();
      CHECK(text.find('\n') == std::string::npos);
      const std::string said = text.starts_with("data/") ? text.substr(text.find(": ") + 2) : text;  // a plugin's name
      CHECK((said.find(folder.path().string()) == 0 || said.find("nothing to pack") == 0));
    }
  }
  CHECK(good >= 100);  // so that what is read is fuzzed too, and not only the first check
  CHECK(refused >= 1'000);
  CHECK(folder.names() == 5);  // a.bin, m.idx, m.bin, a.jsonl, out: no temporary file is left
}
