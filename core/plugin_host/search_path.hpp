#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace strata::plugin_host {

struct SearchFolder {
  std::filesystem::path folder;
  std::string origin;  // who named it: "plugin_path", "STRATA_PLUGIN_PATH", "installed with Strata"
};

// The folders searched for plugins, in order: the config's plugin_path, the environment variable STRATA_PLUGIN_PATH
// (both separated by colons, empty parts skipped), the folder installed with Strata. Duplicates are dropped. Throws
// UserError for a relative folder: the current folder is never searched, so that a run does not depend on where it is
// started.
std::vector<SearchFolder> search_folders(const std::string& plugin_path);

// The folder strata/plugins next to the libstrata.so of this process.
std::filesystem::path installed_plugin_folder();

}  // namespace strata::plugin_host
