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
//   PATH/latest       a link to the last checkpoint with finite values; on a file system without links, a file
//                     with its name
//   PATH/.lock        while a run may save: see folder_lock.hpp
//   PATH/step-N.OWNER.tmp          a checkpoint being written, or the remains of a killed run
//   PATH/step-N.OWNER.old.tmp      a checkpoint being removed
//   PATH/step-N.OWNER.former.tmp   on a file system without exchange of names: the earlier checkpoint of a step that is
//                                  saved again
// One run at a time writes to the folder. [one thread]
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::filesystem::path path) : path_(std::move(path)) {}

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path of_step(std::int64_t step) const;
  // Returns the path of this owner's temporary folder of a step.
  std::filesystem::path temporary_of_step(std::int64_t step) const;

  // Returns the steps of whole checkpoints, ascending; none without the folder. Throws EnvironmentError if the folder
  // cannot be read.
  std::vector<std::int64_t> steps() const;
  // Returns the step to resume: the newest finite one, from the one that `latest` names, or the highest, downwards. An
  // unreadable checkpoint counts as finite, because its reader reports why. If none is finite, returns the first.
  std::optional<std::int64_t> latest() const;
  // Returns the highest step below `step` with finite values.
  std::optional<std::int64_t> finite_below(std::int64_t step) const;

  // Makes the folder if it is missing, locks it, restores the name of a former checkpoint if no other has it, and
  // removes temporaries whose owners are gone. Throws UserError when another process holds the lock or the folder
  // cannot be made. Warns if the file system has no locks.
  void lock();
  // Removes the remains of killed runs, unless a run is active. For the owner of a run that has ended; throws nothing.
  void clean_up() noexcept;
  // Returns the owner, which names the temporaries. lock() makes a new one; the other ranks take rank 0's.
  const Owner& owner() const { return owner_; }
  void set_owner(const Owner& owner) { owner_ = owner; }

  // Begins a checkpoint: makes its temporary folder and returns it. Needs the lock. Throws EnvironmentError.
  std::filesystem::path begin(std::int64_t step);
  // Renames a checkpoint to its final name, replacing one of the same step. Needs the lock. Throws EnvironmentError.
  void finish(std::int64_t step);
  // Points `latest` to a step. Needs the lock. Warns once if impossible. Throws EnvironmentError when the disk fails.
  void point_latest_to(std::int64_t step);
  // Removes lower steps: those that are not finite, and the oldest finite ones, so that with `step` the newest `keep`
  // finite ones are left, and at least `least` of them lower than `step`. keep 0 removes none. Needs the lock. Throws
  // EnvironmentError.
  void retain(std::int64_t step, std::int64_t keep, std::int64_t least);
  // Records in a checkpoint that `what` is not finite, and points `latest` to the finite one before it. Needs the lock.
  // Throws EnvironmentError, DamagedCheckpoint.
  void mark_not_finite(std::int64_t step, const std::string& what);
  // Removes a checkpoint. Needs the lock.
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

// Returns the checkpoint or folder of checkpoints at `path`; for a file `latest`, the checkpoint that it names.
std::filesystem::path resolve_latest(const std::filesystem::path& path);
// Throws UserError if `folder`, `name` in the message, is not a folder.
void require_folder(const std::filesystem::path& folder, const std::string& name);
// Reads the checkpoint in `path`, or the latest in a folder of checkpoints. Throws as TrainingCheckpoint::read, and
// UserError if there is no such folder.
TrainingCheckpoint read_latest(const std::string& path);

}  // namespace strata::checkpoint
