#pragma once
#include <string>

namespace strata::data {

// The folder for temporary files: what TMPDIR names, else /tmp. Throws EnvironmentError where there is none.
std::string temporary_files();

// Makes a temporary folder with a unique name that begins with `name`. Throws EnvironmentError.
std::string make_temporary_folder(const std::string& name);

}  // namespace strata::data
