#pragma once
#include <string>

namespace strata::verify {

// A folder for what runs read and write: `kept`, made if it is missing, or where that is empty a temporary one that
// goes with this object. Throws EnvironmentError.
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
