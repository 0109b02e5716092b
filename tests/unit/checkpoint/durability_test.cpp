// Every call that brings a checkpoint or an export to the disk fails once: the run is told, and what was good stays.
#include <cerrno>
#include <functional>
#include <set>

#include "checkpoint/checkpoint_folder.hpp"
#include "unit/run/ranks.hpp"
#include "watched_calls.hpp"

using namespace strata;

namespace {

namespace fs = std::filesystem;

const std::vector<std::string> durable{"fsync",     "fdatasync", "rename",       "renameat2",     "mkdir",
                                       "fallocate", "pwrite",    "open to read", "open to write", "pread"};

class Saving {
 public:
  std::vector<std::string> settings() const {
    return {config_.data(), "checkpoint.path=" + folder(), "partitioner.plugin=zero3"};
  }
  std::string folder() const { return config_ / "checkpoints"; }
  std::string weights() const { return config_ / "weights"; }

  // On one rank, with a run that has made three steps, a checkpoint after the second.
  void with_run(const std::function<void(const LocalRank& rank)>& body) const {
    on_engines(1, config_.file(), settings(), [&](const LocalRank& rank) {
      for (int step = 0; step < 3; ++step) {
        rank.engine.train_batch(rank.engine.batches());
        if (step == 1) rank.engine.save_checkpoint();
      }
      body(rank);
    });
  }

 private:
  Config config_{"checkpoint: {keep: 1}\n"};
};

// The class and text of what `work` throws, or "".
std::string outcome_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const UserError& error) {
    return std::string("user: ") + error.what();
  } catch (const EnvironmentError& error) {
    return std::string("environment: ") + error.what();
  } catch (const std::exception& error) {
    return std::string("another: ") + error.what();
  }
  return "";
}

// The latest checkpoint, read back whole.
std::int64_t whole_latest(const std::string& folder) {
  const checkpoint::TrainingCheckpoint saved = checkpoint::read_latest(folder);
  checkpoint::verify(saved);
  return saved.step;
}

}  // namespace

TEST_CASE("each failing call of a save is told and leaves a whole checkpoint") {
  long calls = 0, tried = 0;
  {
    const Saving saving;
    saving.with_run([&](const LocalRank& rank) {
      const WatchedCalls watched(saving.folder(), durable);
      rank.engine.save_checkpoint();
      rank.engine.train_batch(rank.engine.batches());  // whose loss lets the checkpoint before that one go
      calls = watched.count();
    });
    CHECK(whole_latest(saving.folder()) == 3);
  }
  REQUIRE(calls > 40);
  const Saving saving;
  saving.with_run([&](const LocalRank& rank) {
    for (long failing = 1; failing <= calls; ++failing) {
      std::string failed, outcome;
      {
        const WatchedCalls watched(saving.folder(), durable, failing, EIO);
        outcome = outcome_of([&] {
          rank.engine.save_checkpoint();
          rank.engine.train_batch(rank.engine.batches());
        });
        failed = watched.failed();
      }
      CAPTURE(failing, failed, outcome);
      REQUIRE(!failed.empty());
      CHECK_THAT(outcome, Contains("environment: ") && Contains("Input/output error"));
      CHECK(whole_latest(saving.folder()) >= 2);
      ++tried;
      // A step that is saved is left as it is: the next one.
      rank.engine.train_batch(rank.engine.batches());
    }
    const std::string last = rank.engine.save_checkpoint();
    CHECK(whole_latest(saving.folder()) == rank.engine.steps_done());
    rank.engine.train_batch(rank.engine.batches());
    CHECK(checkpoint::CheckpointFolder(saving.folder()).steps() ==
          std::vector<std::int64_t>{rank.engine.steps_done() - 1});
    CHECK_THAT(last, Contains("step-"));
  });
  CHECK(tried == calls);
}

TEST_CASE("a file system that cannot flush folders or make links is none that fails") {
  const Saving saving;
  saving.with_run([&](const LocalRank& rank) {
    for (const int error : {EINVAL, EOPNOTSUPP, EROFS, EACCES}) {
      data::flush_folder(saving.folder());
      const WatchedCalls watched(saving.folder(), {"fsync"}, 1, error);
      CHECK_NOTHROW(data::flush_folder(saving.folder()));
      CHECK_THAT(watched.failed(), Contains("fsync"));
    }
    for (const int error : {EIO, ENOSPC, EDQUOT, ESTALE, EBADF}) {
      const WatchedCalls watched(saving.folder(), {"fsync"}, 1, error);
      CHECK_THAT(error_of<EnvironmentError>([&] { data::flush_folder(saving.folder()); }),
                 Contains(saving.folder()) && Contains("flushing"));
    }
    {
      const WatchedCalls watched(saving.folder(), {"symlink"}, 1, EPERM);
      rank.engine.save_checkpoint();
      CHECK_THAT(watched.failed(), Contains("symlink"));
    }
    CHECK(fs::is_regular_file(fs::symlink_status(saving.folder() + "/latest")));
    CHECK(whole_latest(saving.folder()) == 3);
    CHECK(whole_latest(saving.folder() + "/latest") == 3);
  });
  on_engines(1, Config().file(), saving.settings(), [&](const LocalRank& rank) {
    CHECK(rank.engine.resume(saving.folder() + "/latest"));
    CHECK(rank.engine.steps_done() == 3);
  });
}

TEST_CASE("each failing call of an export is told and leaves nothing") {
  long calls = 0;
  const Saving saving;
  saving.with_run([&](const LocalRank& rank) {
    {
      const WatchedCalls watched(saving.weights(),
                                 {"fsync", "rename", "renameat2", "mkdir", "fallocate", "pwrite", "open to write"});
      rank.engine.export_weights(saving.weights());
      calls = watched.count();
    }
    REQUIRE(calls > 8);
    for (long failing = 1; failing <= calls; ++failing) {
      const std::string folder = saving.weights() + std::to_string(failing);
      std::string failed, outcome;
      {
        const WatchedCalls watched(saving.weights(),
                                   {"fsync", "rename", "renameat2", "mkdir", "fallocate", "pwrite", "open to write"},
                                   failing, EIO);
        outcome = outcome_of([&] { rank.engine.export_weights(folder); });
        failed = watched.failed();
      }
      CAPTURE(failing, failed, outcome);
      REQUIRE(!failed.empty());
      CHECK_THAT(outcome, Contains("Input/output error"));
      CHECK_FALSE(fs::exists(folder));
    }
  });
}

TEST_CASE("a failed read-back ends the save and deletes nothing") {
  const Saving saving;
  saving.with_run([&](const LocalRank& rank) {
    const WatchedCalls watched(saving.folder(), {"pread"}, 1, EIO);
    CHECK_THAT(outcome_of([&] { rank.engine.save_checkpoint(); }), Contains("environment: "));
  });
  CHECK(checkpoint::CheckpointFolder(saving.folder()).steps() == std::vector<std::int64_t>{2});
}
