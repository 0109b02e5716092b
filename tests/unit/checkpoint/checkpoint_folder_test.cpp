// A folder of checkpoints: which it holds, which is the latest, which are kept, who owns it, and what others left
// there.
#include "checkpoint/checkpoint_folder.hpp"

#include <unistd.h>
#include <strata/error.hpp>

#include <chrono>
#include <set>

#include "catch.hpp"
#include "checkpoint/training_checkpoint.hpp"
#include "temporary_folder.hpp"

using namespace strata;
using namespace strata::checkpoint;
using Catch::Matchers::Contains;

namespace {

namespace fs = std::filesystem;

// A checkpoint of no parameters in a folder of checkpoints.
void save_step(CheckpointFolder& folder, std::int64_t step, std::int64_t keep, const std::string& not_finite = "") {
  TrainingCheckpoint saved;
  saved.step = step;
  saved.not_finite = not_finite;
  write_file(folder.begin(step) / checkpoint_file_name, saved.text());
  folder.finish(step);
  if (not_finite.empty()) folder.point_latest_to(step);
  folder.retain(step, keep, not_finite.empty() ? 0 : 1000);
}

}  // namespace

TEST_CASE("the folder of checkpoints: names, latest, keeping, locking") {
  const TemporaryFolder scratch;
  const fs::path path = scratch.path() / "run" / "checkpoints";
  {
    CheckpointFolder folder(path);
    CHECK(folder.steps().empty());
    CHECK_FALSE(folder.latest().has_value());
    folder.lock();
    CHECK_THROWS_WITH(CheckpointFolder(path).lock(),
                      Contains("another run") && Contains("process " + std::to_string(::getpid())));
    const auto save = [&](std::int64_t step, std::int64_t keep) {
      save_step(folder, step, keep);
      CHECK_FALSE(fs::exists(folder.temporary_of_step(step)));
      CHECK(folder.latest() == step);
    };
    for (const std::int64_t step : {2, 4, 6, 8}) save(step, 0);
    CHECK(folder.steps() == std::vector<std::int64_t>{2, 4, 6, 8});
    save(10, 3);
    CHECK(folder.steps() == std::vector<std::int64_t>{6, 8, 10});
    write_file(path / "step-8" / "of_the_former", "x");
    save(8, 3);  // of a run that went on from 6: the higher one is not its own and stays
    CHECK(folder.steps() == std::vector<std::int64_t>{6, 8, 10});
    CHECK_FALSE(fs::exists(path / "step-8" / "of_the_former"));
    CHECK(fs::read_symlink(path / "latest") == "step-8");
    save(12, 1);
    CHECK(folder.steps() == std::vector<std::int64_t>{12});
    folder.begin(14);
    folder.drop(14);
    fs::remove(path / "latest");
    CHECK(folder.latest() == 12);
  }
  CHECK(std::distance(fs::directory_iterator(path), {}) == 1);  // the lock's file is gone, too
}

TEST_CASE("checkpoints whose values are not finite replace none that are") {
  const TemporaryFolder scratch;
  CheckpointFolder folder(scratch.path());
  folder.lock();
  const auto steps = [&] { return folder.steps(); };
  using Steps = std::vector<std::int64_t>;
  save_step(folder, 1, 2, "the loss of step 0");
  CHECK(folder.latest() == 1);  // there is no other: who resumes is told
  save_step(folder, 2, 2);
  CHECK(steps() == Steps{2});
  save_step(folder, 4, 2);
  save_step(folder, 6, 2, "the master of a.weight");
  CHECK(steps() == Steps{2, 4, 6});
  CHECK(folder.latest() == 4);
  save_step(folder, 8, 2, "the loss of step 7");
  CHECK(steps() == Steps{2, 4, 8});
  fs::remove(scratch.path() / "latest");
  CHECK(folder.latest() == 4);
  CHECK(folder.finite_below(4) == 2);
  CHECK(read_latest(scratch.path().string()).step == 4);
  save_step(folder, 10, 2);
  CHECK(steps() == Steps{4, 10});
  folder.mark_not_finite(10, "the loss of step 10");
  CHECK(folder.latest() == 4);
  CHECK(fs::read_symlink(scratch.path() / "latest") == "step-4");
  CHECK(TrainingCheckpoint::read(folder.of_step(10)).not_finite == "the loss of step 10");
}

TEST_CASE("retention keeps recent damaged checkpoints, and those of newer versions") {
  const TemporaryFolder scratch;
  CheckpointFolder folder(scratch.path());
  folder.lock();
  for (const std::int64_t step : {1, 2, 3}) save_step(folder, step, 0);
  fs::remove(folder.of_step(1) / checkpoint_file_name);
  fs::remove(folder.of_step(3) / checkpoint_file_name);
  save_step(folder, 4, 2);
  CHECK(folder.steps() == std::vector<std::int64_t>{2, 3, 4});
  save_step(folder, 5, 2);
  CHECK(folder.steps() == std::vector<std::int64_t>{4, 5});
}

TEST_CASE("where latest is a file it is read, by its own name too") {
  const TemporaryFolder scratch;
  CheckpointFolder folder(scratch.path());
  folder.lock();
  for (const std::int64_t step : {2, 4, 6}) save_step(folder, step, 0);
  fs::remove(scratch.path() / "latest");
  write_file(scratch / "latest", "step-4\n");
  CHECK(folder.latest() == 4);
  CHECK(read_latest(scratch.path().string()).step == 4);
  CHECK(read_latest(scratch / "latest").step == 4);
  folder.point_latest_to(6);
  CHECK(fs::is_symlink(scratch.path() / "latest"));
  CHECK(folder.latest() == 6);
  write_file(scratch / "other", "step-4\n");
  CHECK_THROWS_AS(read_latest(scratch / "other"), UserError);
}

TEST_CASE("only leftovers of killed runs are removed, by the next run or their owner") {
  const TemporaryFolder scratch;
  const std::string gone = format_owner({new_owner().place, 0x3fffff00, 7});  // no process has that number
  const std::string elsewhere = format_owner({new_owner().place + 1, 1, 7});
  const std::vector<std::string> leftovers{"step-4.tmp", "step-2.old.tmp", "step-6." + gone + ".tmp",
                                           "step-2." + gone + ".old.tmp"};
  const auto leave = [&] {
    for (const std::string& name : leftovers) {
      fs::create_directories(scratch.path() / name);
      write_file(scratch.path() / name / "shard-0-of-1.safetensors.tmp-1", "half");
    }
    fs::create_symlink("step-4", scratch.path() / "latest.tmp");
    fs::create_symlink("step-4", scratch.path() / ("latest." + gone + ".tmp"));
  };
  fs::create_directories(scratch.path() / "step-2");
  fs::create_directories(scratch.path() / "step-x.tmp");
  fs::create_directories(scratch.path() / ("step-8." + elsewhere + ".tmp"));
  fs::create_directories(scratch.path() / ("step-7." + elsewhere + ".former.tmp"));
  write_file(scratch.path() / "notes.tmp", "mine");
  leave();
  CheckpointFolder(scratch.path()).clean_up();
  const auto left = [&] {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(scratch.path())) names.insert(entry.path().filename().string());
    names.erase(".lock");
    return names;
  };
  const std::set<std::string> kept{"step-2", "step-x.tmp", "notes.tmp", "step-8." + elsewhere + ".tmp",
                                   "step-7." + elsewhere + ".former.tmp"};
  CHECK(left() == kept);
  leave();
  CheckpointFolder folder(scratch.path());
  folder.lock();
  CHECK(left() == kept);
  leave();
  CheckpointFolder(scratch.path()).clean_up();  // a run is at work: not now
  CHECK(left().size() == kept.size() + leftovers.size() + 2);
}

TEST_CASE("another host's leftovers are removed after hours without a change") {
  const TemporaryFolder scratch;
  const Owner elsewhere{new_owner().place + 1, 1, 7};
  const fs::path old = scratch.path() / ("step-8." + format_owner(elsewhere) + ".tmp");
  const fs::path former = scratch.path() / ("step-7." + format_owner(elsewhere) + ".former.tmp");
  for (const fs::path& path : {old, former}) {
    fs::create_directories(path);
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(7));
  }
  CheckpointFolder folder(scratch.path());
  folder.lock();
  CHECK_FALSE(fs::exists(old));
  CHECK(folder.steps() == std::vector<std::int64_t>{7});
}

TEST_CASE("owners come back from names") {
  const Owner owner = new_owner();
  CHECK(parse_owner(format_owner(owner)) == owner);
  CHECK_FALSE(new_owner() == owner);
  CHECK(is_of_this_host(owner));
  CHECK_FALSE(is_gone(owner));
  for (const std::string& text : {std::string(), format_owner(owner) + "0", std::string(32, 'g'), std::string(32, 'A')})
    CHECK_FALSE(parse_owner(text).has_value());
}
