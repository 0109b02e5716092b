#include "tools/verify/folder.hpp"

#include <strata/error.hpp>
#include <strata/input_file.hpp>

#include <filesystem>

#include "data/temporary_folder.hpp"

namespace strata::verify {

Folder::Folder(const std::string& kept) : is_kept_(!kept.empty()) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (is_kept_) {
    if (fs::exists(kept, error) && !fs::is_directory(kept, error))
      throw UserError("--keep {}: is a file; give a folder", kept);
    fs::create_directories(kept, error);
    if (error) throw_cannot_open(kept, "this folder cannot be created", error.value());
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
