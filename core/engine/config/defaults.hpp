#pragma once
#include <filesystem>
#include <string>

#include "config/tree.hpp"

namespace strata::config {

// Returns the folder that libstrata.so was loaded from. Throws EnvironmentError when it is linked statically.
std::filesystem::path library_folder();

// Returns the folder of the core's data files, such as defaults.yaml: STRATA_CONFIG_DIR if set, otherwise
// share/strata/configs beside this library's folder. Throws EnvironmentError with the folders tried.
std::string configs_folder();

// Returns the folder of project templates, one folder for each kind of plugin: share/strata/templates beside this
// library's folder. Throws EnvironmentError with the folders tried.
std::string templates_folder();

// Returns the defaults of a config: every key's default, overridden by defaults.yaml, which names the plugins. Throws
// EnvironmentError, UserError.
Node read_defaults();

}  // namespace strata::config
