#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/training_checkpoint.hpp"

namespace strata::checkpoint {

// A run's checkpoints, as `checkpoint.path` names them:
//   PATH/step-N       whole checkpoints; a folder gets this name when all in it is on the disk
//   PATH/latest       a link to the one saved last
//   PATH/step-N.tmp   one under way, or what a run that was killed left of one
//   PATH/step-N.former.tmp   where a file system cannot exchange two names: the earlier one of a step that is saved
//   again
// One run at a time writes to it, which a lock on the folder itself sees to: it leaves no file, and the kernel drops it
// when its process ends. Where a file system has no locks there is none. [one thread]
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::filesystem::path path) : path_(std::move(path)) {}
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path of_step(std::int64_t step) const;
  std::filesystem::path temporary_of_step(std::int64_t step) const;

  // The steps of whole checkpoints, ascending; none when there is no such folder. Throws EnvironmentError when there is
  // one that cannot be looked into.
  std::vector<std::int64_t> steps() const;
  // The step of the checkpoint saved last: what `latest` names, else the highest there is.
  std::optional<std::int64_t> latest() const;

  // Makes the folder if it is not there, locks it, gives a former checkpoint its name back where no other has it, and
  // removes what else killed runs left. Throws UserError when another
  // process holds the lock or the folder cannot be made.
  void lock();
  // Removes what killed runs left, unless a run is at work. For who owned a run that has ended; throws nothing.
  void clean_up() noexcept;

  // All three need the lock. Begins a checkpoint: makes its temporary folder and returns it. Throws EnvironmentError.
  std::filesystem::path begin(std::int64_t step);
  // Gives it its name, in place of an earlier one of this step, points `latest` to it and then removes the oldest of
  // the lower steps, so that with it `keep` are left; 0 keeps all. Throws EnvironmentError.
  void finish(std::int64_t step, std::int64_t keep);
  // Removes it.
  void drop(std::int64_t step) noexcept;

 private:
  void remove_temporaries() const;
  void point_latest_to(std::int64_t step) const;
  void remove(std::int64_t step) const;

  std::filesystem::path path_;
  int lock_ = -1;
};

// What lies in `path`: a checkpoint, or of a folder of them the latest. Throws as TrainingCheckpoint::read, and
// UserError where there is no such folder.
TrainingCheckpoint read_latest(const std::string& path);

}  // namespace strata::checkpoint
