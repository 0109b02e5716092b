#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <strata/error.hpp>

#include <array>
#include <bit>
#include <fstream>
#include <functional>
#include <span>

#include "catch.hpp"
#include "checkpoint/plugin_state.hpp"
#include "checkpoint/ranges.hpp"
#include "checkpoint/training_checkpoint.hpp"
#include "temporary_folder.hpp"

using namespace strata;
using namespace strata::checkpoint;
using Catch::Matchers::Contains;

namespace {

namespace fs = std::filesystem;

// Element i of a parameter's master is i, of its "exp_avg" 1000 + i.
at::Tensor elements(const std::string& state, std::int64_t begin, std::int64_t end) {
  const std::int64_t base = state == master_state ? 0 : 1000;
  return at::arange(base + begin, base + end, at::TensorOptions().dtype(at::kFloat));
}

SavedFile write_shard(const fs::path& folder, const std::string& name, const std::vector<RangeName>& ranges) {
  std::vector<TensorSpec> specs;
  for (const RangeName& range : ranges)
    specs.push_back({format_range_name(range), at::kFloat, {range.end - range.begin}});
  SafetensorsWriter writer((folder / name).string(), specs, {});
  for (const std::string& text : writer.order()) {
    const RangeName range = parse_range_name(text).value();
    writer.write_range(text, 0, elements(range.state, range.begin, range.end));
  }
  writer.finish();
  return {name, writer.bytes(), writer.checksum()};
}

// A plugin's state is what `save` writes.
using Save = std::function<void(StateWriter&)>;

SavedFile write_plugins(const fs::path& folder, const std::string& name, int version, const Save& save) {
  MeasuredState state("precision/some");
  save(state);
  PluginFileWriter file(folder, name, {{{"precision", "precision/some", version, state.values()}, state.bytes()}});
  BytesWriter bytes("precision", &file, &file);
  save(bytes);
  return file.finish();
}

// As format 1 had it.
SavedFile write_rank_text(const fs::path& folder, std::int64_t rank, std::int64_t ranks, const std::string& values) {
  const std::string text =
      R"({"plugins": [{"slot": "precision", "plugin": "precision/some", "state_version": 2, "values": )" + values +
      "}]}\n";
  return write_saved(folder, former_rank_file_name(rank, ranks), text);
}

// `text` with another body, and the checksum of that.
std::string with_body(const std::string& text, const std::string& from, const std::string& to) {
  std::string rest = text.substr(text.find('\n') + 1);
  rest.replace(rest.find(from), from.size(), to);
  return "{\"xxh3\": \"" + format_checksum(checksum_of(rest)) + "\", \"checkpoint\":\n" + rest;
}

const std::vector<RangeName> first_shard{
    {"a.weight", master_state, 0, 5}, {"a.weight", "exp_avg", 0, 5}, {"b|bias", master_state, 0, 1}};
const std::vector<RangeName> second_shard{
    {"a.weight", master_state, 5, 7}, {"a.weight", "exp_avg", 5, 7}, {"b|bias", master_state, 1, 3}};
const std::vector<RangeName> third_shard{{"a.weight", master_state, 7, 12}, {"a.weight", "exp_avg", 7, 12}};

// A checkpoint of three ranks: a.weight [3, 4] with a state, b|bias [3] without.
TrainingCheckpoint write_checkpoint(const fs::path& folder) {
  fs::create_directories(folder);
  TrainingCheckpoint saved;
  saved.folder = folder;
  saved.step = 7;
  saved.updates = 6;
  saved.optimizer_updates = 24;
  saved.samples = 56;
  saved.data = {100, 0x0123456789abcdef};
  saved.layout = {3, {{Axis::Data, 3}}};
  saved.config = {{"train.seed", "3"}, {"data.path", "a \"quoted\" path"}};
  saved.parameters = {{"a.weight", {3, 4}}, {"b|bias", {3}}};
  const std::vector<std::vector<RangeName>> shards{first_shard, second_shard, third_shard};
  std::vector<SafetensorsFile> headers;
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    saved.files.push_back(write_shard(folder, shard_name(rank, 3), shards[static_cast<std::size_t>(rank)]));
    headers.emplace_back((folder / shard_name(rank, 3)).string());
    saved.files.push_back(write_plugins(folder, rank_file_name(rank, 3), 2, [&](StateWriter& writer) {
      writer.integer("n", rank);
      writer.rank_bytes("own", std::as_bytes(std::span(&rank, 1)));
    }));
  }
  saved.files.push_back(RangeIndex(folder, headers, saved.parameters).save());
  write_file(folder / checkpoint_file_name, saved.text());
  return saved;
}

// As a resumed run opens one.
void open_whole(const fs::path& folder) {
  const TrainingCheckpoint saved = TrainingCheckpoint::read(folder);
  verify(saved);
  const RangeSource source(saved.folder, saved.files, saved.parameters);
}

}  // namespace

TEST_CASE("names of ranges come back, others are none") {
  for (const RangeName& name :
       {RangeName{"gpt.layers.0.weight", "master", 0, 4096}, RangeName{"odd|name|0:1", "exp_avg_sq", 7, 7}}) {
    const std::optional<RangeName> read = parse_range_name(format_range_name(name));
    REQUIRE(read.has_value());
    CHECK(*read == name);
  }
  for (const char* text : {"", "a", "a|b", "a|b|", "a|b|1", "a|b|1:", "a|b|:1", "a|b|2:1", "a|b|-1:1", "a|b|01:2",
                           "a||0:1", "|b|0:1", "a|b|0:1x"})
    CHECK_FALSE(parse_range_name(text).has_value());
  CHECK_THROWS_AS(format_range_name({"a", "b|c", 0, 1}), Bug);
}

TEST_CASE("a plugin's values come back bit by bit") {
  const double odd_nan = std::bit_cast<double>(std::uint64_t{0x7ff8000000000123});
  const std::array<std::byte, 3> bytes{std::byte{0}, std::byte{255}, std::byte{16}};
  const Save save = [&](StateWriter& writer) {
    writer.integer("least", INT64_MIN);
    writer.rank_bytes("of this rank", bytes);  // before "bytes", as a file in the order of names would not have it
    writer.number("nan", odd_nan);
    writer.number("minus zero", -0.0);
    writer.number("tenth", 0.1);
    writer.text("text", "a\n\"b\"");
    writer.bytes("bytes", bytes);
    writer.bytes("none", {});
  };
  MeasuredState state("precision/some");
  save(state);
  CHECK_THROWS_AS(state.integer("nan", 1), Bug);
  CHECK_THROWS_AS(state.rank_bytes("bytes", bytes), Bug);
  CHECK_THROWS_AS(state.text("not text", "\xff\xfe"), Bug);

  const TemporaryFolder scratch;
  const SavedFile written = write_plugins(scratch.path(), "plugins.safetensors", 4, save);
  CHECK(checksum_of(read_file(scratch / "plugins.safetensors")) == written.checksum);
  const PluginFile file(scratch.path() / "plugins.safetensors");
  const SavedPlugin* const saved = file.find("precision", "precision/some");
  REQUIRE(saved != nullptr);
  CHECK(saved->state_version == 4);
  CHECK(file.find("precision", "precision/other") == nullptr);
  const PluginStateReader reader("ckpt/step-7", *saved, {nullptr, &file});
  CHECK(reader.integer("least") == INT64_MIN);
  CHECK(std::bit_cast<std::uint64_t>(reader.number("nan")) == 0x7ff8000000000123);
  CHECK(std::signbit(reader.number("minus zero")));
  CHECK(reader.number("tenth") == 0.1);
  CHECK(reader.text("text") == "a\n\"b\"");
  CHECK((reader.bytes("bytes") == std::vector<std::byte>(bytes.begin(), bytes.end())));
  CHECK((reader.bytes("of this rank") == std::vector<std::byte>(bytes.begin(), bytes.end())));
  CHECK(reader.bytes("none").empty());
  CHECK(reader.contains("text"));
  CHECK_FALSE(reader.contains("other"));
  CHECK_THROWS_WITH(reader.integer("other"),
                    Contains("ckpt/step-7") && Contains("other") && Contains("precision/some"));
  CHECK_THROWS_WITH(reader.integer("text"), Contains("is not of type integer"));
  CHECK_THROWS_WITH(reader.integer("bytes"), Contains("is not of type integer"));
  const PluginStateReader without("ckpt/step-7", *saved, {});
  CHECK_FALSE(without.contains("of this rank"));
}

TEST_CASE("a plugin whose save() gives other bytes the second time is named") {
  const TemporaryFolder scratch;
  const auto saved = [&](const char* name, std::size_t size) {
    int calls = 0;
    write_plugins(scratch.path(), "plugins.safetensors", 1, [&](StateWriter& writer) {
      const std::vector<std::byte> bytes(++calls == 1 ? 4 : size);
      writer.rank_bytes(calls == 1 ? "errors" : name, bytes);
    });
  };
  CHECK_THROWS_AS(saved("others", 4), Bug);
  CHECK_THROWS_AS(saved("errors", 5), Bug);
  CHECK_THROWS_AS(saved("errors", 3), Bug);
  CHECK(scratch.names() == 0);
  CHECK_NOTHROW(saved("errors", 4));
}

TEST_CASE("the checksum covers the plugins' shared values, not a rank's own") {
  const auto of = [](std::int64_t integer, std::uint8_t byte, std::uint8_t own) {
    MeasuredState state("precision/some");
    state.integer("n", integer);
    state.bytes("bytes", std::as_bytes(std::span(&byte, 1)));
    state.rank_bytes("own", std::as_bytes(std::span(&own, 1)));
    return state.checksum();
  };
  CHECK(of(1, 2, 3) == of(1, 2, 4));
  CHECK(of(1, 2, 3) != of(2, 2, 3));
  CHECK(of(1, 2, 3) != of(1, 3, 3));
}

TEST_CASE("a checkpoint of format 1 is read") {
  const TemporaryFolder scratch;
  const fs::path folder = scratch.path() / "step-7";
  TrainingCheckpoint saved = write_checkpoint(folder);
  for (std::int64_t rank = 0; rank < 3; ++rank) fs::remove(folder / rank_file_name(rank, 3));
  fs::remove(folder / index_file_name);
  std::erase_if(saved.files, [](const SavedFile& file) { return !is_shard(file.name); });
  for (std::int64_t rank = 0; rank < 3; ++rank)
    saved.files.push_back(write_rank_text(
        folder, rank, 3, R"({"n": {"integer": 5}, "all": {"bytes": "00ff10"}, "own": {"rank_bytes": "07"}})"));
  write_file(folder / checkpoint_file_name, with_body(saved.text(), "\"format\": 2", "\"format\": 1"));
  open_whole(folder);
  const TrainingCheckpoint read = TrainingCheckpoint::read(folder);
  CHECK(read.format == 1);
  CHECK(read.is_finite());
  const RangeSource source(folder, read.files, read.parameters);
  const at::Tensor values = at::empty({12}, at::kFloat);
  source.read("a.weight", "exp_avg", 0, 12, values);
  CHECK(at::equal(values, elements("exp_avg", 0, 12)));
  const PluginFile file(folder / former_rank_file_name(1, 3));
  const SavedPlugin& plugin = file.plugins().at(0);
  const PluginStateReader reader("ckpt/step-7", plugin, {&file});
  CHECK(reader.integer("n") == 5);
  CHECK((reader.bytes("all") == std::vector<std::byte>{std::byte{0}, std::byte{255}, std::byte{16}}));
  CHECK((reader.bytes("own") == std::vector<std::byte>{std::byte{7}}));
  const SavedPlugin of_all = plugin.of_all_ranks();
  const PluginStateReader on_other_ranks("ckpt/step-7", of_all, {});
  CHECK_FALSE(on_other_ranks.contains("own"));
  CHECK((on_other_ranks.bytes("all") == reader.bytes("all")));
}

TEST_CASE("any range is read from the shards that hold it") {
  const TemporaryFolder scratch;
  write_checkpoint(scratch.path() / "step-7");
  const TrainingCheckpoint saved = TrainingCheckpoint::read(scratch.path() / "step-7");
  CHECK(saved.step == 7);
  CHECK(saved.updates == 6);
  CHECK(saved.optimizer_updates == 24);
  CHECK(saved.samples == 56);
  CHECK(saved.layout == SavedLayout{3, {{Axis::Data, 3}}});
  CHECK(*saved.setting("data.path") == "a \"quoted\" path");
  CHECK(saved.setting("no.key") == nullptr);
  verify(saved);
  const RangeSource source(saved.folder, saved.files, saved.parameters);
  CHECK(source.states("a.weight") == std::vector<std::string>{"exp_avg", "master"});
  CHECK(source.states("b|bias") == std::vector<std::string>{"master"});
  CHECK(source.states("c").empty());
  CHECK(source.dtype("a.weight", "exp_avg") == at::kFloat);
  for (const char* state : {"master", "exp_avg"})
    for (std::int64_t begin = 0; begin <= 12; ++begin)
      for (std::int64_t end = begin; end <= 12; ++end) {
        const at::Tensor read = at::empty({end - begin}, at::kFloat);
        source.read("a.weight", state, begin, end, read);
        CHECK(at::equal(read, elements(state, begin, end)));
      }
  CHECK_THROWS_AS(source.read("a.weight", "other", 0, 1, at::empty({1})), UserError);
  CHECK_THROWS_AS(source.read("a.weight", "master", 11, 13, at::empty({2})), UserError);
}

TEST_CASE("a pending update's inputs are restored bit by bit, and none otherwise") {
  const TemporaryFolder scratch;
  const auto read_again = [&](const std::optional<PendingUpdate>& pending) {
    TrainingCheckpoint saved;
    saved.pending = pending;
    saved.updates = saved.optimizer_updates = 5;
    write_file(scratch.path() / checkpoint_file_name, saved.text());
    return TrainingCheckpoint::read(scratch.path()).pending;
  };
  CHECK(read_again(std::nullopt) == std::nullopt);
  CHECK(TrainingCheckpoint::read(scratch.path()).optimizer_updates == 5);  // as many as steps, where they are not named
  for (const PendingUpdate& pending :
       {PendingUpdate{0.1, 7, static_cast<double>(1.0F / 3.0F), std::nullopt}, PendingUpdate{1e-300, 0, 5e-324, 0.9}})
    CHECK(read_again(pending) == pending);
}

TEST_CASE("elements that stand nowhere or twice are found") {
  const auto opened = [](const std::vector<std::vector<RangeName>>& shards) {
    const TemporaryFolder scratch;
    std::vector<SavedFile> files;
    for (std::size_t i = 0; i < shards.size(); ++i)
      files.push_back(write_shard(scratch.path(), "shard-" + std::to_string(i) + ".safetensors", shards[i]));
    const RangeSource source(scratch.path(), files, {{"a.weight", {3, 4}}, {"b|bias", {3}}});
  };
  CHECK_NOTHROW(opened({first_shard, second_shard, third_shard}));
  CHECK_THROWS_AS(opened({first_shard, second_shard}), DamagedCheckpoint);
  CHECK_THROWS_WITH(opened({first_shard, third_shard, {{"b|bias", master_state, 1, 3}}}),
                    Contains("elements 5 to 7 of the ") && Contains("stand nowhere"));
  CHECK_THROWS_WITH(opened({first_shard, second_shard, third_shard, third_shard}), Contains("are stored twice"));
  CHECK_THROWS_WITH(opened({first_shard, second_shard, third_shard, {{"a.weight", master_state, 4, 7}}}),
                    Contains("stand twice"));
  CHECK_THROWS_WITH(opened({first_shard, second_shard, third_shard, {{"a.weight", master_state, 12, 13}}}),
                    Contains("are too many"));
  CHECK_THROWS_WITH(opened({first_shard, second_shard, third_shard, {{"c", master_state, 0, 1}}}),
                    Contains("does not list"));
  CHECK_THROWS_WITH(opened({}), Contains("holds no weight of a.weight"));
}

TEST_CASE("every altered or missing byte of a checkpoint is found") {
  const TemporaryFolder scratch;
  const fs::path folder = scratch.path() / "step-7";
  std::vector<std::string> names{checkpoint_file_name};
  for (const SavedFile& file : write_checkpoint(folder).files) names.push_back(file.name);
  REQUIRE(names.size() == 8);
  CHECK_NOTHROW(open_whole(folder));
  std::size_t tried = 0;
  for (const std::string& name : names) {
    const std::string whole = read_file(folder / name);
    for (std::size_t at = 0; at < whole.size(); ++at) {
      std::string altered = whole;
      altered[at] = static_cast<char>(altered[at] ^ (1 << (tried % 8)));
      write_file(folder / name, altered);
      INFO(name << ", byte " << at);
      CHECK_THROWS_AS(open_whole(folder), DamagedCheckpoint);
      ++tried;
    }
    for (std::size_t size = 0; size < whole.size(); size += 7) {
      write_file(folder / name, whole.substr(0, size));
      INFO(name << " cut to " << size);
      CHECK_THROWS_AS(open_whole(folder), DamagedCheckpoint);
    }
    write_file(folder / name, whole + "x");
    CHECK_THROWS_AS(open_whole(folder), DamagedCheckpoint);
    fs::remove(folder / name);
    CHECK_THROWS_WITH(open_whole(folder), Contains(name));
    write_file(folder / name, whole);
  }
  CHECK(tried > 2000);
  CHECK_NOTHROW(open_whole(folder));
}

TEST_CASE("a newer format is refused as such") {
  const TemporaryFolder scratch;
  const fs::path folder = scratch.path() / "step-7";
  write_file(folder / checkpoint_file_name,
             with_body(write_checkpoint(folder).text(), "\"format\": 2", "\"format\": 3"));
  try {
    open_whole(folder);
    FAIL("it was opened");
  } catch (const DamagedCheckpoint& error) {
    FAIL("it is not damaged: " << error.what());
  } catch (const UserError& error) {
    CHECK_THAT(error.what(), Contains("is of format 3") && Contains("reads formats 1 to 2"));
  }
}
