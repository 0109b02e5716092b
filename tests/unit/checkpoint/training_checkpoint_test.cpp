#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <unistd.h>
#include <strata/error.hpp>
#include <strata/fakes/local_group.hpp>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "catch.hpp"
#include "checkpoint/agreement.hpp"
#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/plugin_state.hpp"
#include "checkpoint/ranges.hpp"
#include "checkpoint/training_checkpoint.hpp"
#include "temporary_folder.hpp"

using namespace strata;
using namespace strata::checkpoint;
using Catch::Matchers::Contains;
using strata::runtime::Failure;
using strata::runtime::Outcome;

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

SavedFile write_rank_file(const fs::path& folder, const std::string& name, const std::vector<SavedPlugin>& plugins) {
  const std::string text = format_rank_file(plugins);
  write_file(folder / name, text);
  return {name, text.size(), checksum_of(text)};
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
  saved.data_samples = 100;
  saved.layout = {3, 1, 3, 1};
  saved.config = {{"train.seed", "3"}, {"data.path", "a \"quoted\" path"}};
  saved.parameters = {{"a.weight", {3, 4}}, {"b|bias", {3}}};
  const std::vector<std::vector<RangeName>> shards{first_shard, second_shard, third_shard};
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    saved.files.push_back(write_shard(folder, shard_name(rank, 3), shards[static_cast<std::size_t>(rank)]));
    saved.files.push_back(write_rank_file(folder, rank_file_name(rank, 3),
                                          {{"precision", "precision/some", 2, {{"n", {{"integer", rank}}}}}}));
  }
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
  PluginStateWriter writer("precision/some");
  const double odd_nan = std::bit_cast<double>(std::uint64_t{0x7ff8000000000123});
  writer.integer("least", INT64_MIN);
  writer.number("nan", odd_nan);
  writer.number("minus zero", -0.0);
  writer.number("tenth", 0.1);
  writer.text("text", "a\n\"b\"");
  const std::array<std::byte, 3> bytes{std::byte{0}, std::byte{255}, std::byte{16}};
  writer.bytes("bytes", bytes);
  writer.rank_bytes("of this rank", bytes);
  CHECK_THROWS_AS(writer.integer("nan", 1), Bug);
  CHECK_THROWS_AS(writer.text("not text", "\xff\xfe"), Bug);

  const TemporaryFolder scratch;
  const fs::path path = scratch.path() / "rank.json";
  write_file(path, format_rank_file({{"precision", "precision/some", 4, writer.values()}}));
  const std::vector<SavedPlugin> read = read_rank_file(path);
  REQUIRE(read.size() == 1);
  CHECK(read[0].state_version == 4);
  const PluginStateReader reader("ckpt/step-7", "precision/some", read[0].values);
  CHECK(reader.integer("least") == INT64_MIN);
  CHECK(std::bit_cast<std::uint64_t>(reader.number("nan")) == 0x7ff8000000000123);
  CHECK(std::signbit(reader.number("minus zero")));
  CHECK(reader.number("tenth") == 0.1);
  CHECK(reader.text("text") == "a\n\"b\"");
  CHECK((reader.bytes("bytes") == std::vector<std::byte>(bytes.begin(), bytes.end())));
  CHECK((reader.bytes("of this rank") == std::vector<std::byte>(bytes.begin(), bytes.end())));
  const PluginStateReader on_other_ranks("ckpt/step-7", "precision/some", read[0].of_all_ranks().values);
  CHECK_FALSE(on_other_ranks.contains("of this rank"));
  CHECK((on_other_ranks.bytes("bytes") == reader.bytes("bytes")));
  CHECK(reader.contains("text"));
  CHECK_FALSE(reader.contains("other"));
  CHECK_THROWS_WITH(reader.integer("other"),
                    Contains("ckpt/step-7") && Contains("other") && Contains("precision/some"));
  CHECK_THROWS_WITH(reader.integer("text"), Contains("is no integer"));
}

TEST_CASE("any range is read from whatever shards hold it") {
  const TemporaryFolder scratch;
  write_checkpoint(scratch.path() / "step-7");
  const TrainingCheckpoint saved = TrainingCheckpoint::read(scratch.path() / "step-7");
  CHECK(saved.step == 7);
  CHECK(saved.updates == 6);
  CHECK(saved.optimizer_updates == 24);
  CHECK(saved.samples == 56);
  CHECK(saved.layout == SavedLayout{3, 1, 3, 1});
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

TEST_CASE("what a pending update is to be made with comes back bit by bit, and nothing where none is pending") {
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
  CHECK_THROWS_WITH(opened({first_shard, second_shard, third_shard, third_shard}), Contains("stand elsewhere too"));
  CHECK_THROWS_WITH(opened({first_shard, second_shard, third_shard, {{"a.weight", master_state, 4, 7}}}),
                    Contains("stand twice"));
  CHECK_THROWS_WITH(opened({first_shard, second_shard, third_shard, {{"a.weight", master_state, 12, 13}}}),
                    Contains("are too many"));
  CHECK_THROWS_WITH(opened({first_shard, second_shard, third_shard, {{"c", master_state, 0, 1}}}),
                    Contains("does not list"));
  CHECK_THROWS_WITH(opened({}), Contains("holds no weight of a.weight"));
}

TEST_CASE("every byte of a checkpoint that is altered is found, and so is every byte that is missing") {
  const TemporaryFolder scratch;
  const fs::path folder = scratch.path() / "step-7";
  std::vector<std::string> names{checkpoint_file_name};
  for (const SavedFile& file : write_checkpoint(folder).files) names.push_back(file.name);
  REQUIRE(names.size() == 7);
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
  std::string text = write_checkpoint(folder).text();
  std::string rest = text.substr(text.find('\n') + 1);
  rest.replace(rest.find("\"format\": 1"), 11, "\"format\": 2");
  write_file(folder / checkpoint_file_name,
             "{\"xxh3\": \"" + format_checksum(checksum_of(rest)) + "\", \"checkpoint\":\n" + rest);
  try {
    open_whole(folder);
    FAIL("it was opened");
  } catch (const DamagedCheckpoint& error) {
    FAIL("it is not damaged: " << error.what());
  } catch (const UserError& error) {
    CHECK_THAT(error.what(), Contains("is of format 2") && Contains("reads format 1"));
  }
}

TEST_CASE("the folder of checkpoints: names, latest, keeping, locking") {
  const TemporaryFolder scratch;
  const fs::path path = scratch.path() / "run" / "checkpoints";
  CheckpointFolder folder(path);
  CHECK(folder.steps().empty());
  CHECK_FALSE(folder.latest().has_value());
  folder.lock();
  CHECK_THROWS_WITH(CheckpointFolder(path).lock(), Contains("another run"));
  const auto save = [&](std::int64_t step, std::int64_t keep, const std::string& content = "x") {
    write_file(folder.begin(step) / "file", content);
    CHECK(fs::exists(folder.temporary_of_step(step)));
    folder.finish(step, keep);
    CHECK_FALSE(fs::exists(folder.temporary_of_step(step)));
    CHECK(folder.latest() == step);
  };
  for (const std::int64_t step : {2, 4, 6, 8}) save(step, 0);
  CHECK(folder.steps() == std::vector<std::int64_t>{2, 4, 6, 8});
  save(10, 3);
  CHECK(folder.steps() == std::vector<std::int64_t>{6, 8, 10});
  save(8, 3, "again");  // of a run that went on from 6: the higher one is not its own and stays
  CHECK(folder.steps() == std::vector<std::int64_t>{6, 8, 10});
  CHECK(read_file(path / "step-8" / "file") == "again");
  CHECK(read_file(path / "latest" / "file") == "again");
  save(12, 1);
  CHECK(folder.steps() == std::vector<std::int64_t>{12});
  folder.begin(14);
  folder.drop(14);
  fs::remove(path / "latest");
  CHECK(folder.latest() == 12);
  std::size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(path)) ++entries;
  CHECK(entries == 1);
}

TEST_CASE("what killed runs left is removed, by the next one or by who owned it, and nothing else") {
  const TemporaryFolder scratch;
  const auto leave = [&] {
    for (const char* name : {"step-4.tmp", "step-2.old.tmp"}) {
      fs::create_directories(scratch.path() / name);
      write_file(scratch.path() / name / "shard-0-of-1.safetensors.tmp-1", "half");
    }
    fs::create_symlink("step-4", scratch.path() / "latest.tmp");
  };
  fs::create_directories(scratch.path() / "step-2");
  fs::create_directories(scratch.path() / "step-x.tmp");
  write_file(scratch.path() / "notes.tmp", "mine");
  leave();
  CheckpointFolder(scratch.path()).clean_up();
  const auto left = [&] {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(scratch.path())) names.insert(entry.path().filename().string());
    return names;
  };
  const std::set<std::string> kept{"step-2", "step-x.tmp", "notes.tmp"};
  CHECK(left() == kept);
  leave();
  CheckpointFolder folder(scratch.path());
  folder.lock();
  CHECK(left() == kept);
  leave();
  CheckpointFolder(scratch.path()).clean_up();  // a run is at work: not now
  CHECK(left().size() == kept.size() + 3);
}

TEST_CASE("ranks that work on their own come to one outcome") {
  std::vector<Outcome> outcomes(3);
  std::vector<int> calls(3);
  fakes::on_ranks(3, [&](CheckedGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    outcomes[rank] = runtime::work_in_rounds(group, at::kCPU, [&] { return ++calls[rank] <= 2 * group.rank(); });
  });
  CHECK(calls == std::vector<int>{1, 3, 5});
  for (const Outcome& outcome : outcomes) CHECK_NOTHROW(outcome.check());
  fakes::on_ranks(3, [&](CheckedGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    outcomes[rank] = runtime::work_in_rounds(group, at::kCPU, [&]() -> bool {
      if (rank == 1) throw DamagedCheckpoint("shard 1 is cut");
      if (rank == 2) throw EnvironmentError("the disk is full");
      return true;
    });
  });
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.failure == Failure::Damaged);
    CHECK_THROWS_WITH(outcome.check(), "shard 1 is cut");
  }
}
