// What a machine does to a run's files: descriptors run out, folders may not be read, names cannot be exchanged, a
// process is killed between two renames, somebody has put a link where a file is about to be made.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <cerrno>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "catch.hpp"
#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/hugging_face.hpp"
#include "checkpoint/plugin_state.hpp"
#include "checkpoint/ranges.hpp"
#include "checkpoint/training_checkpoint.hpp"
#include "data/file.hpp"
#include "error_of.hpp"
#include "temporary_folder.hpp"

namespace {
bool names_can_be_exchanged = true;
std::string killed_before_name;  // a process that is about to give this name dies
}  // namespace

// In place of the C library's: libstrata.so calls these.
extern "C" [[gnu::visibility("default")]] int renameat2(int from_folder, const char* from, int to_folder,
                                                        const char* to, unsigned flags) noexcept {
  if (flags != 0 && !names_can_be_exchanged) {
    errno = EINVAL;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}
extern "C" [[gnu::visibility("default")]] int rename(const char* from, const char* to) noexcept {
  if (!killed_before_name.empty() && killed_before_name == to) ::_exit(9);
  return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

namespace {

using namespace strata;
using namespace strata::checkpoint;

// A checkpoint of so many ranks: one parameter, of one element a rank, whose element i is i.
TrainingCheckpoint save_small(const std::filesystem::path& folder, std::int64_t ranks) {
  std::filesystem::create_directories(folder);
  TrainingCheckpoint saved;
  saved.folder = folder;
  saved.layout = {ranks, {{Axis::Data, static_cast<int>(ranks)}}};
  saved.parameters = {{"weight", {ranks}}};
  std::vector<SafetensorsFile> headers;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const std::string name = format_range_name({"weight", master_state, rank, rank + 1});
    SafetensorsWriter writer((folder / shard_name(rank, ranks)).string(), {{name, at::kFloat, {1}}}, {});
    writer.write_range(name, 0, at::arange(rank, rank + 1, at::kFloat));
    writer.finish();
    saved.files.push_back({shard_name(rank, ranks), writer.bytes(), writer.checksum()});
    headers.emplace_back((folder / shard_name(rank, ranks)).string(), writer.header(), writer.bytes());
  }
  saved.files.push_back(RangeIndex(folder, headers, saved.parameters).save());
  PluginFileWriter plugins(folder, plugins_file_name, {});
  saved.files.push_back(plugins.finish());
  write_file((folder / checkpoint_file_name).string(), saved.text());
  return saved;
}

// The error's class and text.
std::string outcome_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const DamagedCheckpoint& error) {
    return std::string("damaged: ") + error.what();
  } catch (const UserError& error) {
    return std::string("user: ") + error.what();
  } catch (const EnvironmentError& error) {
    return std::string("environment: ") + error.what();
  } catch (const std::exception& error) {
    return std::string("another: ") + error.what();
  }
  return "whole";
}

// While one lives, this process may open `more` files.
class FewDescriptors {
 public:
  explicit FewDescriptors(int more) {
    ::getrlimit(RLIMIT_NOFILE, &former_);
    const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);  // the lowest that is free
    ::close(next);
    rlimit few = former_;
    few.rlim_cur = static_cast<rlim_t>(next + more);
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &former_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit former_{};
};

// Root may read everything; a test of what may not be read is made as nobody.
class AsNobody {
 public:
  AsNobody() : was_root_(::geteuid() == 0) {
    if (was_root_) REQUIRE(::seteuid(65534) == 0);
  }
  ~AsNobody() {
    if (was_root_) REQUIRE(::seteuid(0) == 0);
  }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;

 private:
  bool was_root_;
};

void may_be_read(const std::filesystem::path& path, bool readable) {
  namespace fs = std::filesystem;
  fs::permissions(path, readable ? fs::perms::all : fs::perms::none);
}

}  // namespace

TEST_CASE("a checkpoint of more ranks than a process may have files open is read") {
  const TemporaryFolder folder;
  const TrainingCheckpoint saved = save_small(folder.path() / "step-1", 64);
  const FewDescriptors few(8);
  std::optional<RangeSource> source;
  CHECK(outcome_of([&] { source.emplace(saved.folder, saved.files, saved.parameters); }) == "whole");
  REQUIRE(source.has_value());
  const at::Tensor all = at::empty({64}, at::kFloat);
  source->read("weight", master_state, 0, 64, all);
  CHECK(at::equal(all, at::arange(64, at::kFloat)));
}

TEST_CASE("only missing or altered files are damage: read errors skip no checkpoint") {
  const TemporaryFolder folder;
  const TrainingCheckpoint saved = save_small(folder.path() / "step-1", 2);
  const auto read = [&] { TrainingCheckpoint::read(saved.folder); };
  const auto verified = [&] { verify(saved); };
  const auto opened = [&] { const RangeSource source(saved.folder, saved.files, saved.parameters); };
  const auto state = [&] { PluginFile(saved.folder / plugins_file_name); };
  {
    const FewDescriptors none(0);
    for (const auto& work : std::vector<std::function<void()>>{read, verified, opened, state}) {
      const std::string outcome = outcome_of(work);
      CHECK_THAT(outcome, Contains("environment: ") && Contains("ulimit -n"));
    }
  }
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  may_be_read(saved.folder, true);
  may_be_read(saved.folder / checkpoint_file_name, false);
  may_be_read(saved.folder / shard_name(1, 2), false);
  may_be_read(saved.folder / plugins_file_name, false);
  may_be_read(saved.folder / index_file_name, false);
  {
    const AsNobody nobody;
    for (const auto& work : std::vector<std::function<void()>>{read, verified, opened, state}) {
      const std::string outcome = outcome_of(work);
      CHECK_THAT(outcome, Contains("user: ") && Contains("Permission denied"));
    }
  }
  may_be_read(saved.folder, false);
  {
    const AsNobody nobody;
    CHECK_THAT(outcome_of(read), Contains("Permission denied") && !Contains("damaged"));
  }
  may_be_read(saved.folder, true);
  may_be_read(folder.path(), false);
  {
    const AsNobody nobody;
    CHECK_THAT(outcome_of(read), Contains("environment: ") && Contains("Permission denied"));
    CHECK_THAT(outcome_of([&] { CheckpointFolder(folder.path()).latest(); }),
               Contains("environment: ") && Contains("cannot be read"));
  }
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  std::filesystem::remove(saved.folder / index_file_name);
  CHECK_THAT(outcome_of(opened), Contains("damaged: "));
}

TEST_CASE("a step saved again always has a whole checkpoint") {
  const TemporaryFolder scratch;
  const auto save = [&](const std::string& content) {
    CheckpointFolder folder(scratch.path());
    folder.lock();
    write_file((folder.begin(5) / "file").string(), content);
    folder.finish(5);
  };
  save("first");
  names_can_be_exchanged = false;
  save("second");
  CHECK(read_file(scratch / "step-5/file") == "second");
  CHECK(scratch.names() == 1);

  const pid_t child = ::fork();  // of `save`, killed as late as it can be before the new one has the name
  REQUIRE(child >= 0);
  if (child == 0) {
    killed_before_name = scratch / "step-5";
    save("third");
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WEXITSTATUS(status) == 9);
  CheckpointFolder next(scratch.path());
  next.lock();
  CHECK(next.steps() == std::vector<std::int64_t>{5});
  CHECK(next.latest() == 5);
  CHECK(read_file(scratch / "step-5/file") == "second");
  CHECK(scratch.names() == 2);  // with the lock
  names_can_be_exchanged = true;
}

TEST_CASE("a temporary file has a name that no other process uses") {
  const TemporaryFolder folder;
  write_file(folder / "victim", "precious");
  std::filesystem::create_symlink(folder / "victim", folder / ("out.tmp-" + std::to_string(::getpid())));
  data::OutputFile file(folder / "out");
  file.write_at(0, "abc", 3);
  data::OutputFile again(folder / "out", data::Existing::Replace);  // of another process, as it might be
  again.write_at(0, "defg", 4);
  CHECK(read_file(folder / "victim") == "precious");
  file.finish();
  CHECK(read_file(folder / "out") == "abc");
  again.finish();
  CHECK(read_file(folder / "out") == "defg");
  CHECK(folder.names() == 3);
}

TEST_CASE("only a killed process's unfinished export is removed") {
  const TemporaryFolder folder;
  const std::vector<TensorSpec> specs{{"weight", at::kFloat, {4}}};
  HuggingFaceExporter first(folder / "hf", "{}", specs, 1000);
  CHECK(folder.names() == 1);
  const pid_t child = ::fork();  // killed while it exports
  REQUIRE(child >= 0);
  if (child == 0) {
    const auto* const killed = new HuggingFaceExporter(folder / "hf", "{}", specs, 1000);
    ::_exit(killed == nullptr ? 1 : 0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(folder.names() == 2);
  {
    HuggingFaceExporter second(folder / "hf", "{}", specs, 1000);
    CHECK(folder.names() == 2);
  }
  CHECK(folder.names() == 1);
  first.write_range("weight", 0, at::arange(4, at::kFloat));
  first.finish();
  CHECK(std::filesystem::exists(folder / "hf/model.safetensors"));
  CHECK(folder.names() == 1);
}
