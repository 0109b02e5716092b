// Checks of lasting effects of a plugin on its process, and of leftovers of its runs.
#pragma once
#include <filesystem>
#include <functional>

namespace strata::conformance {

// An empty working folder for processes of worlds, which reveals files with relative paths.
class WorkingFolder {
 public:
  WorkingFolder();
  WorkingFolder(const WorkingFolder&) = delete;
  WorkingFolder& operator=(const WorkingFolder&) = delete;
  ~WorkingFolder();
  void enter() const { std::filesystem::current_path(folder_); }
  void check() const;  // throws Failure if there is a file

 private:
  std::filesystem::path folder_;
};

// Repeats a run many times. Throws Failure if memory, files or threads grow.
void require_nothing_left(const std::function<void()>& run);

}  // namespace strata::conformance
