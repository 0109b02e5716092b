// What a plugin changes of what everything in its process shares, and what its runs leave behind.
#pragma once
#include <filesystem>
#include <functional>

namespace strata::conformance {

// An empty working folder for processes of worlds, so that a file with a relative path shows.
class WorkingFolder {
 public:
  WorkingFolder();
  WorkingFolder(const WorkingFolder&) = delete;
  WorkingFolder& operator=(const WorkingFolder&) = delete;
  ~WorkingFolder();
  void enter() const { std::filesystem::current_path(folder_); }
  void check() const;  // throws Failure where there is a file

 private:
  std::filesystem::path folder_;
};

// Makes the same run many times. Throws Failure where memory, files or threads become more.
void require_nothing_left(const std::function<void()>& run);

}  // namespace strata::conformance
