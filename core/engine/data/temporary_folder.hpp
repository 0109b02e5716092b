#pragma once
#include <string>

namespace strata::data {

// Returns the folder for temporary files: TMPDIR, otherwise /tmp. Throws EnvironmentError if there is none.
std::string temporary_files();

// Makes a temporary folder with a unique name that begins with `name`. Throws EnvironmentError.
std::string make_temporary_folder(const std::string& name);

}  // namespace strata::data
