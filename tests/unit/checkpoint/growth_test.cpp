// Twice the ranks open at most 2.3 times the files in all, to save, to resume and to resume on other ranks.
#include "checkpoint/ranges.hpp"
#include "checkpoint/training_checkpoint.hpp"
#include "unit/run/ranks.hpp"
#include "watched_calls.hpp"

using namespace strata;

namespace {

struct Opens {
  long save = 0, resume = 0, resume_on_half = 0;
};

// Of `ranks` in all.
Opens opens_of(int ranks) {
  const Config config;
  const std::string folder = config / "checkpoints";
  const auto settings = [&](int on) {
    return std::vector<std::string>{config.data(),
                                    "train.global_batch=16",
                                    "train.micro_batch=1",
                                    "train.accumulation=" + std::to_string(16 / on),
                                    "partitioner.plugin=zero3",
                                    "checkpoint.path=" + folder};
  };
  const std::vector<std::string> opened{"open to read", "open to write"};
  Opens opens;
  {
    const WatchedCalls watched(folder, opened);
    on_engines(ranks, config.file(), settings(ranks), [&](const LocalRank& rank) {
      rank.engine.train_batch(rank.engine.batches());
      rank.engine.save_checkpoint();
    });
    opens.save = watched.count();
  }
  const auto resume = [&](int on) {
    const WatchedCalls watched(folder, opened);
    on_engines(on, config.file(), settings(on), [](const LocalRank& rank) {
      if (!rank.engine.resume()) throw std::runtime_error("nothing to go on from");
    });
    return watched.count();
  };
  opens.resume = resume(ranks);
  opens.resume_on_half = resume(ranks / 2);
  return opens;
}

}  // namespace

TEST_CASE("files opened by all ranks grow no faster than their number") {
  const Opens four = opens_of(4), eight = opens_of(8);
  CAPTURE(four.save, eight.save, four.resume, eight.resume, four.resume_on_half, eight.resume_on_half);
  CHECK(static_cast<double>(eight.save) <= 2.3 * static_cast<double>(four.save));
  CHECK(static_cast<double>(eight.resume) <= 2.3 * static_cast<double>(four.resume));
  CHECK(static_cast<double>(eight.resume_on_half) <= 2.3 * static_cast<double>(four.resume_on_half));
}

TEST_CASE("a reader of one range opens its shard and the index alone") {
  for (const std::int64_t ranks : {8, 64}) {
    const TemporaryFolder folder;
    checkpoint::TrainingCheckpoint saved;
    saved.parameters = {{"weight", {ranks}}};
    std::vector<checkpoint::SafetensorsFile> headers;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const std::string name = checkpoint::shard_name(rank, ranks);
      const std::string range = checkpoint::format_range_name({"weight", checkpoint::master_state, rank, rank + 1});
      checkpoint::SafetensorsWriter writer(folder / name, {{range, at::kFloat, {1}}}, {});
      writer.write_range(range, 0, at::tensor({static_cast<float>(rank)}));
      writer.finish();
      headers.emplace_back(folder / name, writer.header(), writer.bytes());
      saved.files.push_back({name, writer.bytes(), writer.checksum()});
    }
    saved.files.push_back(checkpoint::RangeIndex(folder.path(), headers, saved.parameters).save());
    const WatchedCalls watched(folder.path().string(), {"open to read"});
    const checkpoint::RangeSource source(folder.path(), saved.files, saved.parameters);
    const at::Tensor read = at::tensor({0.0F});
    for (int again = 0; again < 3; ++again) source.read("weight", checkpoint::master_state, 5, 6, read);
    CHECK(read.item<float>() == 5.0F);
    CHECK(watched.count() == 3);  // the index's header, its rows, the shard
  }
}
