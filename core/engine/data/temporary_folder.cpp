#include "data/temporary_folder.hpp"

#include <stdlib.h>
#include <strata/error.hpp>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "interface/src/system_error.hpp"

namespace strata::data {

std::string temporary_files() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  if (!error) return folder.string();
  const char* const variable = std::getenv("TMPDIR");
  throw EnvironmentError(variable == nullptr
                             ? std::string("/tmp is not a folder; set TMPDIR to a folder for temporary files")
                             : "TMPDIR is '" + std::string(variable) +
                                   "', which is not a folder; set it to an existing, writable folder");
}

std::string make_temporary_folder(const std::string& name) {
  std::string path = temporary_files() + "/" + name + "-XXXXXX";
  if (mkdtemp(path.data()) != nullptr) return path;
  throw EnvironmentError("cannot create a folder for temporary files, {}: {}; set TMPDIR to a writable folder", path,
                         describe_errno(errno));
}

}  // namespace strata::data
