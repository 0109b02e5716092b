#include "checkpoint/checkpoint_folder.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <system_error>

#include "data/file.hpp"

namespace strata::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view step_prefix = "step-";
constexpr std::string_view temporary_suffix = ".tmp";
constexpr std::string_view old_suffix = ".old.tmp";        // a checkpoint on its way out
constexpr std::string_view former_suffix = ".former.tmp";  // a whole one, whose name another is about to take
constexpr const char* latest_name = "latest";

std::string text_of(int error) {
  return std::generic_category().message(error);
}

// The N of "step-N"; nothing for any other name.
std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(step_prefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + step_prefix.size(), end, step);
  if (error != std::errc() || stop != end || step < 0 || std::string(step_prefix) + std::to_string(step) != name)
    return std::nullopt;
  return step;
}

// The N of "step-N" and `suffix`.
std::optional<std::int64_t> step_of(const std::string& name, std::string_view suffix) {
  return name.ends_with(suffix) ? step_of(name.substr(0, name.size() - suffix.size())) : std::nullopt;
}

// Of a checkpoint under way or on its way out, or of the link.
bool is_temporary(const std::string& name) {
  return name == std::string(latest_name) + std::string(temporary_suffix) || step_of(name, temporary_suffix) ||
         step_of(name, old_suffix) || step_of(name, former_suffix);
}

void rename_or_throw(const fs::path& from, const fs::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0)
    throw EnvironmentError(from.string() + ": cannot be renamed to " + to.filename().string() + ": " + text_of(errno));
}

}  // namespace

CheckpointFolder::~CheckpointFolder() {
  if (lock_ >= 0) ::close(lock_);
}

fs::path CheckpointFolder::of_step(std::int64_t step) const {
  return path_ / (std::string(step_prefix) + std::to_string(step));
}

fs::path CheckpointFolder::temporary_of_step(std::int64_t step) const {
  return of_step(step).string() + std::string(temporary_suffix);
}

std::vector<std::int64_t> CheckpointFolder::steps() const {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator entry(path_, error), end; !error && entry != end; entry.increment(error))
    if (const auto step = step_of(entry->path().filename().string())) steps.push_back(*step);
  // A folder that cannot be looked into may hold some: a run that took it for empty would begin anew.
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    throw EnvironmentError(path_.string() + ": cannot be looked into: " + error.message());
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<std::int64_t> CheckpointFolder::latest() const {
  const std::vector<std::int64_t> known = steps();
  if (known.empty()) return std::nullopt;
  std::error_code error;
  const auto named = step_of(fs::read_symlink(path_ / latest_name, error).filename().string());
  return !error && named && std::binary_search(known.begin(), known.end(), *named) ? *named : known.back();
}

void CheckpointFolder::lock() {
  const Place place{path_.string()};
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) throw UserError(place, "checkpoint.path names a folder that cannot be made: " + error.message());
  lock_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0) throw UserError(place, "checkpoint.path names a folder that cannot be opened: " + text_of(errno));
  if (::access(path_.c_str(), W_OK) != 0)
    throw UserError(place, "checkpoint.path names a folder that cannot be written to: " + text_of(errno));
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw UserError(place, "another run is saving its checkpoints here; give each run a checkpoint.path of its own");
  remove_temporaries();
  const fs::path link = path_ / latest_name;
  if (const fs::file_status status = fs::symlink_status(link, error); fs::exists(status) && !fs::is_symlink(status))
    throw UserError(Place{link.string()}, "is in the place of the link to the latest checkpoint; move it away");
}

void CheckpointFolder::clean_up() noexcept {
  try {
    const int handle = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (handle < 0) return;
    if (::flock(handle, LOCK_EX | LOCK_NB) == 0) remove_temporaries();
    ::close(handle);
  } catch (...) {  // whoever saves or resumes next tries again
  }
}

void CheckpointFolder::remove_temporaries() const {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(path_, error), end; !error && entry != end; entry.increment(error))
    if (is_temporary(entry->path().filename().string())) found.push_back(entry->path());
  for (const fs::path& path : found) {
    const auto step = step_of(path.filename().string(), former_suffix);
    if (step && !fs::exists(of_step(*step), error))
      fs::rename(path, of_step(*step), error);  // the run was killed before the other one had the name
    else
      fs::remove_all(path, error);
  }
}

fs::path CheckpointFolder::begin(std::int64_t step) {
  const fs::path temporary = temporary_of_step(step);
  std::error_code error;
  fs::remove_all(temporary, error);
  if (!fs::create_directory(temporary, error))
    throw EnvironmentError(temporary.string() + ": cannot be made: " + error.message());
  return temporary;
}

void CheckpointFolder::finish(std::int64_t step, std::int64_t keep) {
  const fs::path temporary = temporary_of_step(step);
  const fs::path final = of_step(step);
  data::flush_folder(temporary.string());
  std::error_code error;
  if (fs::exists(final, error)) {
    // Of a run that went on from an earlier step. In one move where the file system can, so that one of the two is
    // always there.
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, final.c_str(), RENAME_EXCHANGE) == 0) {
      fs::remove_all(temporary, error);
    } else {
      const fs::path former = final.string() + std::string(former_suffix);
      fs::remove_all(former, error);
      rename_or_throw(final, former);
      if (std::rename(temporary.c_str(), final.c_str()) != 0) {
        const int problem = errno;
        fs::rename(former, final, error);
        throw EnvironmentError(temporary.string() + ": cannot be renamed to " + final.filename().string() + ": " +
                               text_of(problem));
      }
      fs::remove_all(former, error);
    }
  } else {
    rename_or_throw(temporary, final);
  }
  data::flush_folder(path_.string());
  point_latest_to(step);
  if (keep == 0) return;
  std::vector<std::int64_t> lower = steps();
  std::erase_if(lower, [&](std::int64_t other) { return other >= step; });
  const std::int64_t excess = static_cast<std::int64_t>(lower.size()) - (keep - 1);
  for (std::int64_t i = 0; i < excess; ++i) remove(lower[static_cast<std::size_t>(i)]);
}

void CheckpointFolder::point_latest_to(std::int64_t step) const {
  const fs::path link = path_ / latest_name;
  const fs::path temporary = link.string() + std::string(temporary_suffix);
  std::error_code error;
  fs::remove(temporary, error);
  fs::create_symlink(of_step(step).filename(), temporary, error);
  if (error) throw EnvironmentError(temporary.string() + ": cannot be made: " + error.message());
  rename_or_throw(temporary, link);
  data::flush_folder(path_.string());
}

// Under another name first: half of a checkpoint must not look like one.
void CheckpointFolder::remove(std::int64_t step) const {
  const fs::path old = of_step(step).string() + std::string(old_suffix);
  std::error_code error;
  fs::remove_all(old, error);
  rename_or_throw(of_step(step), old);
  fs::remove_all(old, error);
}

void CheckpointFolder::drop(std::int64_t step) noexcept {
  std::error_code ignored;
  fs::remove_all(temporary_of_step(step), ignored);
}

TrainingCheckpoint read_latest(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error))
    throw UserError(path + ": there is no such folder; a checkpoint, or a folder of them, is wanted here");
  const CheckpointFolder folder(path);
  const std::optional<std::int64_t> latest = folder.latest();
  return TrainingCheckpoint::read(latest ? folder.of_step(*latest) : fs::path(path));
}

}  // namespace strata::checkpoint
