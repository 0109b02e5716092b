#pragma once
#include <string>

namespace strata::verify {

// Folder for the files of runs: `kept`, created if missing, or if that is empty a temporary one that is removed with
// this object. Throws EnvironmentError.
class Folder {
 public:
  explicit Folder(const std::string& kept);
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  bool is_kept_;
  std::string path_;
};

}  // namespace strata::verify
