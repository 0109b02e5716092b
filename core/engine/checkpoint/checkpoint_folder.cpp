#include "checkpoint/checkpoint_folder.hpp"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <stdio.h>
#include <unistd.h>
#include <strata/error.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <system_error>
#include <utility>

#include "data/file.hpp"
#include "interface/src/system_error.hpp"

namespace strata::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view step_prefix = "step-";
constexpr std::string_view temporary_suffix = ".tmp";
constexpr std::string_view old_suffix = ".old.tmp";        // a checkpoint on its way out
constexpr std::string_view former_suffix = ".former.tmp";  // a whole one, whose name another is about to take
constexpr const char* latest_name = "latest";

// After this long without a change, a temporary of a host that cannot be asked counts as left.
constexpr double left_after_s = 6.0 * 3600.0;

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

// Of a checkpoint under way or on its way out, or of `latest`.
struct TemporaryName {
  std::optional<std::int64_t> step;
  std::optional<Owner> owner;  // nothing in names of former versions
  bool former = false;
};

std::optional<TemporaryName> parse_temporary(std::string name) {
  TemporaryName found;
  const auto take = [&](std::string_view suffix) {
    if (!name.ends_with(suffix)) return false;
    name.resize(name.size() - suffix.size());
    return true;
  };
  if (name.starts_with(std::string(latest_name) + data::temporary_mark))
    return found;  // of the file in place of a link
  found.former = take(former_suffix);
  if (!found.former && !take(old_suffix) && !take(temporary_suffix)) return std::nullopt;
  const std::size_t dot = name.find('.');
  if (dot != std::string::npos) {
    found.owner = parse_owner(name.substr(dot + 1));
    if (!found.owner) return std::nullopt;
    name.resize(dot);
  }
  found.step = step_of(name);
  return found.step || name == latest_name ? std::optional(found) : std::nullopt;
}

// True for errors of a file system without links, or without room for one: a checkpoint that is complete does without.
bool may_lack(int error) {
  return error == EPERM || error == EACCES || error == EOPNOTSUPP || error == ENOSYS || error == EINVAL ||
         error == EMLINK || error == ENOSPC || error == EDQUOT;
}

void rename_or_throw(const fs::path& from, const fs::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0)
    throw EnvironmentError("{}: cannot be renamed to {}: {}", from.string(), to.filename().string(),
                           describe_errno(errno));
}

// The first line of a small file; empty where it cannot be read.
std::string line_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return "";
  try {
    const data::InputFile file(path.string());
    std::string text(std::min<std::uint64_t>(file.size(), 64), '\0');
    file.read_at(0, text.data(), text.size());
    return text.substr(0, text.find('\n'));
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

fs::path CheckpointFolder::of_step(std::int64_t step) const {
  return path_ / (std::string(step_prefix) + std::to_string(step));
}

fs::path CheckpointFolder::with_owner(const std::string& name, std::string_view suffix) const {
  return path_ / (name + "." + format_owner(owner_) + std::string(suffix));
}

fs::path CheckpointFolder::temporary_of_step(std::int64_t step) const {
  return with_owner(of_step(step).filename().string(), temporary_suffix);
}

std::vector<std::int64_t> CheckpointFolder::steps() const {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator entry(path_, error), end; !error && entry != end; entry.increment(error))
    if (const auto step = step_of(entry->path().filename().string())) steps.push_back(*step);
  // A folder that cannot be looked into may hold some: a run that took it for empty would begin anew.
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    throw EnvironmentError("{}: cannot be read: {}", path_.string(), describe_errno(error.value()));
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<std::int64_t> CheckpointFolder::named_latest() const {
  const fs::path path = path_ / latest_name;
  std::error_code error;
  const fs::path target = fs::read_symlink(path, error);
  return step_of(error ? line_of(path) : target.filename().string());
}

bool CheckpointFolder::counts_as_finite(std::int64_t step) const {
  try {
    return TrainingCheckpoint::read(of_step(step)).is_finite();
  } catch (const UserError&) {
    return true;
  }
}

std::optional<std::int64_t> CheckpointFolder::latest() const {
  const std::vector<std::int64_t> known = steps();
  if (known.empty()) return std::nullopt;
  const std::optional<std::int64_t> named = named_latest();
  const std::int64_t first = named && std::ranges::binary_search(known, *named) ? *named : known.back();
  return counts_as_finite(first) ? first : finite_below(first).value_or(first);
}

std::optional<std::int64_t> CheckpointFolder::finite_below(std::int64_t step) const {
  std::vector<std::int64_t> lower = steps();
  std::erase_if(lower, [&](std::int64_t other) { return other >= step; });
  const auto found =
      std::find_if(lower.rbegin(), lower.rend(), [&](std::int64_t one) { return counts_as_finite(one); });
  return found == lower.rend() ? std::nullopt : std::optional(*found);
}

void CheckpointFolder::lock() {
  const Place place{path_.string()};
  if (const std::error_code error = data::make_folders(path_.string()))
    throw_cannot_open(path_.string(), "checkpoint.path names a folder that cannot be created", error.value());
  if (::access(path_.c_str(), R_OK | X_OK) != 0)
    throw_cannot_open(path_.string(), "checkpoint.path names a folder that cannot be opened", errno);
  if (::access(path_.c_str(), W_OK) != 0)
    throw_cannot_open(path_.string(), "checkpoint.path names a folder that cannot be written to", errno);
  lock_ = std::make_unique<FolderLock>(path_);
  if (lock_->taken() == FolderLock::Taken::ByAnother) {
    const std::string holder = lock_->text();
    lock_.reset();
    throw UserError(place,
                    "another run is saving its checkpoints here ({}); give each run a checkpoint.path of its own, or "
                    "wait until that one has ended",
                    holder);
  }
  if (lock_->taken() == FolderLock::Taken::NotSupported)
    spdlog::warn(
        "{}: the file system has no locks ({}), so a second run that saves here would not be detected; give each run a "
        "checkpoint.path of its own",
        path_.string(), lock_->text());
  owner_ = new_owner();
  remove_temporaries();
  const fs::path latest = path_ / latest_name;
  std::error_code error;
  const fs::file_status status = fs::symlink_status(latest, error);
  if (fs::exists(status) && !fs::is_symlink(status) && !fs::is_regular_file(status))
    throw UserError(Place{latest.string()}, "is where the link to the latest checkpoint belongs; move it away");
}

void CheckpointFolder::clean_up() noexcept {
  try {
    std::error_code error;
    if (!fs::is_directory(path_, error)) return;
    lock_ = std::make_unique<FolderLock>(path_);
    if (lock_->taken() == FolderLock::Taken::Yes) remove_temporaries();
  } catch (...) {  // whoever saves or resumes next tries again
  }
  lock_.reset();
}

void CheckpointFolder::remove_temporaries() const {
  const bool alone = lock_->taken() == FolderLock::Taken::Yes;
  std::vector<std::pair<fs::path, TemporaryName>> found;
  std::error_code error;
  for (fs::directory_iterator entry(path_, error), end; !error && entry != end; entry.increment(error))
    if (const auto name = parse_temporary(entry->path().filename().string())) found.emplace_back(entry->path(), *name);
  for (const auto& [path, name] : found) {
    // A run of this host would hold the lock. One of another host may have lost it with its network, and continue.
    const bool gone = !name.owner || is_gone(*name.owner) || (alone && is_of_this_host(*name.owner));
    if (!gone && lock_->age_s(path) < left_after_s) {
      spdlog::warn("{}: a run on another host was saving this less than {} hours ago; remove it if that run has ended",
                   path.string(), static_cast<int>(left_after_s / 3600.0));
      continue;
    }
    if (name.former && !fs::exists(of_step(*name.step), error))
      fs::rename(path, of_step(*name.step), error);  // the run was killed before the other one had the name
    else
      data::remove_or_warn(path);
  }
}

fs::path CheckpointFolder::begin(std::int64_t step) {
  const fs::path temporary = temporary_of_step(step);
  std::error_code error;
  fs::remove_all(temporary, error);
  if (!fs::create_directory(temporary, error))
    throw EnvironmentError("{}: cannot be created: {}", temporary.string(), describe_errno(error.value()));
  return temporary;
}

void CheckpointFolder::finish(std::int64_t step) {
  const fs::path temporary = temporary_of_step(step);
  const fs::path final = of_step(step);
  data::flush_folder(temporary.string());
  std::error_code error;
  if (fs::exists(final, error)) {
    // Of a run that went on from an earlier step. In one move where the file system can, so that one of the two is
    // always there.
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, final.c_str(), RENAME_EXCHANGE) == 0) {
      data::flush_folder(path_.string());
      data::remove_or_warn(temporary);
    } else {
      const fs::path former = with_owner(final.filename().string(), former_suffix);
      fs::remove_all(former, error);
      rename_or_throw(final, former);
      if (std::rename(temporary.c_str(), final.c_str()) != 0) {
        const int problem = errno;
        fs::rename(former, final, error);
        throw EnvironmentError("{}: cannot be renamed to {}: {}", temporary.string(), final.filename().string(),
                               describe_errno(problem));
      }
      data::flush_folder(path_.string());
      data::remove_or_warn(former);
    }
  } else {
    rename_or_throw(temporary, final);
  }
  data::flush_folder(path_.string());
}

void CheckpointFolder::retain(std::int64_t step, std::int64_t keep, std::int64_t least) {
  if (keep == 0) return;
  std::int64_t left = std::max(keep - 1, least);
  std::vector<std::int64_t> lower = steps();
  std::erase_if(lower, [&](std::int64_t other) { return other >= step; });
  std::ranges::reverse(lower);
  for (const std::int64_t other : lower) {
    try {
      const bool finite = TrainingCheckpoint::read(of_step(other)).is_finite();
      if (finite && left > 0) {
        --left;
        continue;
      }
    } catch (const DamagedCheckpoint&) {  // counts for nothing, and goes with those of its age
      if (left > 0) continue;
    }
    remove(other);
  }
}

void CheckpointFolder::mark_not_finite(std::int64_t step, const std::string& what) {
  TrainingCheckpoint saved = TrainingCheckpoint::read(of_step(step));
  saved.not_finite = what;
  const std::string text = saved.text();
  data::OutputFile file((of_step(step) / checkpoint_file_name).string(), data::Existing::Replace);
  file.write_at(0, text.data(), text.size());
  file.finish();
  if (const std::optional<std::int64_t> good = finite_below(step)) point_latest_to(*good);
}

void CheckpointFolder::point_latest_to(std::int64_t step) {
  const fs::path link = path_ / latest_name;
  const fs::path temporary = with_owner(latest_name, temporary_suffix);
  const std::string target = of_step(step).filename().string();
  std::error_code error;
  fs::remove(temporary, error);
  fs::create_symlink(target, temporary, error);
  if (!error) fs::rename(temporary, link, error);
  if (error) {
    std::error_code ignored;
    data::remove_or_warn(temporary);
    if (!may_lack(error.value()))
      throw EnvironmentError("{}: cannot be linked to {}: {}", link.string(), target, describe_errno(error.value()));
    std::string problem = "a link: " + describe_errno(error.value());
    fs::remove(link, ignored);  // one that names an earlier step is worse than none
    try {
      data::OutputFile file(link.string(), data::Existing::Replace);
      file.write_at(0, (target + "\n").data(), target.size() + 1);
      file.finish();
    } catch (const Error& failed) {
      problem += "; a file: " + std::string(failed.what());
    }
    if (!std::exchange(warned_of_latest_, true))
      spdlog::warn("{}: {}", link.string(),
                   fs::exists(link, ignored)
                       ? "is a file that names the latest checkpoint, because it cannot be " + problem
                       : "cannot be created (" + problem + "); --resume continues from the highest step instead");
  }
  data::flush_folder(path_.string());
}

// Under another name first: half of a checkpoint must not look like one.
void CheckpointFolder::remove(std::int64_t step) const {
  const fs::path old = with_owner(of_step(step).filename().string(), old_suffix);
  std::error_code error;
  fs::remove_all(old, error);
  rename_or_throw(of_step(step), old);
  data::remove_or_warn(old);
}

void CheckpointFolder::drop(std::int64_t step) noexcept {
  data::remove_or_warn(temporary_of_step(step));
}

fs::path resolve_latest(const fs::path& path) {
  if (path.filename() != latest_name) return path;
  const std::string target = line_of(path);
  return step_of(target) ? path.parent_path() / target : path;
}

void require_folder(const fs::path& folder, const std::string& name) {
  std::error_code error;
  if (fs::is_directory(folder, error)) return;
  throw UserError("{} {}; give a checkpoint or a folder of checkpoints", name,
                  fs::exists(folder, error) ? "is a file" : "does not exist");
}

TrainingCheckpoint read_latest(const std::string& path) {
  const fs::path resolved = resolve_latest(path);
  require_folder(resolved, path);
  const CheckpointFolder folder(resolved);
  const std::optional<std::int64_t> latest = folder.latest();
  return TrainingCheckpoint::read(latest ? folder.of_step(*latest) : resolved);
}

}  // namespace strata::checkpoint
