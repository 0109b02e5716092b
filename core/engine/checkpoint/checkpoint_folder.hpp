#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/folder_lock.hpp"
#include "checkpoint/training_checkpoint.hpp"

namespace strata::checkpoint {

// A run's checkpoints, as `checkpoint.path` names them:
//   PATH/step-N       whole checkpoints; a folder gets this name when all in it is on the disk
//   PATH/latest       a link to the one saved last whose values are finite; where the file system has no links, a file
//                     with its name
//   PATH/.lock        while a run may save: see folder_lock.hpp
//   PATH/step-N.OWNER.tmp          one under way, or what a run that was killed left of one
//   PATH/step-N.OWNER.old.tmp      one on its way out
//   PATH/step-N.OWNER.former.tmp   where a file system cannot exchange two names: the earlier one of a step that is
//                                  saved again
// One run at a time writes to it. [one thread]
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::filesystem::path path) : path_(std::move(path)) {}

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path of_step(std::int64_t step) const;
  // This owner's.
  std::filesystem::path temporary_of_step(std::int64_t step) const;

  // The steps of whole checkpoints, ascending; none when there is no such folder. Throws EnvironmentError when there is
  // one that cannot be looked into.
  std::vector<std::int64_t> steps() const;
  // The step to go on from: of what `latest` names, else of the highest, and of those before it the first whose values
  // are finite. One that cannot be read counts as finite, for who reads it tells why. Where none is: the first of them.
  std::optional<std::int64_t> latest() const;
  // The highest step below `step` whose values are finite.
  std::optional<std::int64_t> finite_below(std::int64_t step) const;

  // Makes the folder if it is not there, locks it, gives a former checkpoint its name back where no other has it, and
  // removes temporaries whose owners are gone. Throws UserError when another process holds the lock or the folder
  // cannot be made. Warns where the file system has no locks.
  void lock();
  // Removes what killed runs left, unless a run is at work. For who owned a run that has ended; throws nothing.
  void clean_up() noexcept;
  // Names the temporaries. lock() makes a new one; the other ranks of the run take rank 0's.
  const Owner& owner() const { return owner_; }
  void set_owner(const Owner& owner) { owner_ = owner; }

  // All below need the lock. Begins a checkpoint: makes its temporary folder and returns it. Throws EnvironmentError.
  std::filesystem::path begin(std::int64_t step);
  // Gives it its name, in place of an earlier one of this step. Throws EnvironmentError.
  void finish(std::int64_t step);
  // Points `latest` to it. Warns, once, where that cannot be done. Throws EnvironmentError when the disk fails.
  void point_latest_to(std::int64_t step);
  // Removes the oldest of the lower steps, so that with `step` the newest `keep` are left whose values are finite, and
  // at least `least` lower ones of these; and lower ones whose values are not. keep 0 removes none. Throws
  // EnvironmentError.
  void retain(std::int64_t step, std::int64_t keep, std::int64_t least);
  // Writes into a checkpoint that something of it is not finite, and points `latest` to the one before it that is.
  // Throws EnvironmentError, DamagedCheckpoint.
  void mark_not_finite(std::int64_t step, const std::string& what);
  // Removes it.
  void drop(std::int64_t step) noexcept;

 private:
  bool counts_as_finite(std::int64_t step) const;
  std::optional<std::int64_t> named_latest() const;
  void remove_temporaries() const;
  void remove(std::int64_t step) const;
  std::filesystem::path with_owner(const std::string& name, std::string_view suffix) const;

  std::filesystem::path path_;
  Owner owner_;
  std::unique_ptr<FolderLock> lock_;
  bool warned_of_latest_ = false;
};

// The checkpoint or folder of checkpoints that `path` is; of a file `latest`, the checkpoint that it names.
std::filesystem::path resolve_latest(const std::filesystem::path& path);
// What lies in `path`: a checkpoint, or of a folder of them the latest. Throws as TrainingCheckpoint::read, and
// UserError where there is no such folder.
TrainingCheckpoint read_latest(const std::string& path);

}  // namespace strata::checkpoint
