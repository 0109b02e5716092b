#pragma once
#include <string>

namespace strata::data {

// The folder for temporary files: what TMPDIR names, else /tmp. Throws EnvironmentError where there is none.
std::string temporary_files();

// Makes a folder of a name that nobody else has, which begins with `name`, among the temporary files. Throws
// EnvironmentError.
std::string make_temporary_folder(const std::string& name);

}  // namespace strata::data
