#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace strata::plugin_host {

struct SearchFolder {
  std::filesystem::path folder;
  std::string origin;  // who named it: "plugin_path", "STRATA_PLUGIN_PATH", "installed with Strata"
};

// Where plugins are looked for, in this order: the config's plugin_path, the environment's STRATA_PLUGIN_PATH
// (separated by colons, empty parts skipped), the folder installed with Strata. A folder named twice counts once.
// Throws UserError for a relative folder: the current folder is never searched, so that a run means the same wherever
// it is started.
std::vector<SearchFolder> search_folders(const std::vector<std::string>& plugin_path);

// strata/plugins beside the libstrata.so that this process uses.
std::filesystem::path installed_plugin_folder();

}  // namespace strata::plugin_host
