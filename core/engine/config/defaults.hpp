#pragma once
#include <filesystem>
#include <string>

#include "config/tree.hpp"

namespace strata::config {

// The folder that libstrata.so was loaded from. Throws EnvironmentError when it is linked statically.
std::filesystem::path library_folder();

// The folder of the data that belongs to the core, defaults.yaml among it: STRATA_CONFIG_DIR when that is set, else
// share/strata/configs beside this library's folder. Throws EnvironmentError that says where it looked.
std::string configs_folder();

// The folder that holds a folder of project templates for each kind of plugin: share/strata/templates beside
// this library's folder. Throws EnvironmentError that says where it looked.
std::string templates_folder();

// What a config does not say: every key's default, and over them defaults.yaml, which names the plugins. Throws
// EnvironmentError, UserError.
Node read_defaults();

}  // namespace strata::config
