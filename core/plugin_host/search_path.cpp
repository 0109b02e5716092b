#include "plugin_host/search_path.hpp"

#include <dlfcn.h>
#include <strata/error.hpp>

#include <algorithm>
#include <cstdlib>
#include <sstream>

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

}  // namespace

std::vector<SearchFolder> search_folders(const std::vector<std::string>& plugin_path) {
  std::vector<SearchFolder> folders;
  for (const std::string& folder : plugin_path) add(folders, folder, "plugin_path");
  if (const char* const variable = std::getenv("STRATA_PLUGIN_PATH")) {
    std::istringstream parts(variable);
    for (std::string folder; std::getline(parts, folder, ':');) {
      if (!folder.empty()) add(folders, folder, "STRATA_PLUGIN_PATH");
    }
  }
  add(folders, installed_plugin_folder(), "installed with Strata");
  return folders;
}

std::filesystem::path installed_plugin_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&installed_plugin_folder), &info) == 0 || info.dli_fname == nullptr) {
    throw EnvironmentError(
        "cannot find where libstrata.so is loaded from; link it dynamically, or set STRATA_PLUGIN_PATH");
  }
  return fs::weakly_canonical(fs::absolute(info.dli_fname)).parent_path() / "strata" / "plugins";
}

}  // namespace strata::plugin_host
