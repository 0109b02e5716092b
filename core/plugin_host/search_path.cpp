#include "plugin_host/search_path.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "config/defaults.hpp"

namespace strata::plugin_host {
namespace {

namespace fs = std::filesystem;

void add(std::vector<SearchFolder>& folders, const fs::path& folder, const std::string& origin) {
  if (!folder.is_absolute()) {
    throw UserError(origin + " names the relative folder '" + folder.string() +
                    "'; give an absolute path, because the current folder is never searched");
  }
  std::error_code ignored;  // a missing folder keeps its spelling
  const fs::path canonical = fs::weakly_canonical(folder, ignored);
  const fs::path& kept = canonical.empty() ? folder : canonical;
  const auto same = [&](const SearchFolder& other) { return other.folder == kept; };
  if (std::none_of(folders.begin(), folders.end(), same)) folders.push_back({kept, origin});
}

void add_each(std::vector<SearchFolder>& folders, const std::string& path, const std::string& origin) {
  std::istringstream parts(path);
  for (std::string folder; std::getline(parts, folder, ':');)
    if (!folder.empty()) add(folders, folder, origin);
}

}  // namespace

std::vector<SearchFolder> search_folders(const std::string& plugin_path) {
  std::vector<SearchFolder> folders;
  add_each(folders, plugin_path, "plugin_path");
  if (const char* const variable = std::getenv("STRATA_PLUGIN_PATH")) add_each(folders, variable, "STRATA_PLUGIN_PATH");
  add(folders, installed_plugin_folder(), "installed with Strata");
  return folders;
}

fs::path installed_plugin_folder() {
  return config::library_folder() / "strata" / "plugins";
}

}  // namespace strata::plugin_host
