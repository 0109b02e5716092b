#include "verify/folder.hpp"
#include "data/temporary_folder.hpp"

#include <strata/error.hpp>

#include <filesystem>

namespace strata::verify {

Folder::Folder(const std::string& kept) : is_kept_(!kept.empty()) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (is_kept_) {
    fs::create_directories(kept, error);
    if (std::error_code unseen; !fs::is_directory(kept, unseen))
      throw EnvironmentError("cannot create the folder " + kept + ": " + (error ? error.message() : "it is a file"));
    path_ = fs::absolute(kept).string();
    return;
  }
  path_ = data::make_temporary_folder("strata-verify");
}

Folder::~Folder() {
  std::error_code ignored;
  if (!is_kept_) std::filesystem::remove_all(path_, ignored);
}

}  // namespace strata::verify
