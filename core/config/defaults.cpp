#include "config/defaults.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "config/keys.hpp"

namespace strata::config {
namespace {

constexpr const char* defaults_file = "defaults.yaml";

// share/strata/NAME beside lib, in an installed tree and in a build folder; also where the library lies one folder
// deeper, as in lib/x86_64-linux-gnu.
std::vector<std::filesystem::path> installed_folders(const std::string& name) {
  Dl_info library{};
  if (dladdr(reinterpret_cast<const void*>(&configs_folder), &library) == 0 || library.dli_fname == nullptr) return {};
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(library.dli_fname, error);
  if (error) return {};
  const std::filesystem::path folder = file.parent_path().parent_path();
  return {folder / "share/strata" / name, folder.parent_path() / "share/strata" / name};
}

std::string listed(const std::vector<std::filesystem::path>& folders) {
  std::string text;
  for (const std::filesystem::path& folder : folders) text += (text.empty() ? "" : ", ") + folder.string();
  return text;
}

}  // namespace

std::string configs_folder() {
  std::vector<std::filesystem::path> folders;
  if (const char* chosen = std::getenv("STRATA_CONFIG_DIR"); chosen != nullptr && *chosen != '\0') {
    folders.emplace_back(chosen);  // and no other: a wrong one must not go unnoticed
  } else {
    folders = installed_folders("configs");
  }
  for (const std::filesystem::path& folder : folders) {
    std::error_code error;
    if (std::filesystem::is_regular_file(folder / defaults_file, error)) return folder.string();
  }
  throw EnvironmentError(std::string(defaults_file) + " is in none of: " + listed(folders) +
                         "; set STRATA_CONFIG_DIR to the folder that holds it (configs in the source tree)");
}

std::string templates_folder() {
  const std::vector<std::filesystem::path> folders = installed_folders("templates");
  for (const std::filesystem::path& folder : folders) {
    std::error_code error;
    if (std::filesystem::is_directory(folder, error)) return folder.string();
  }
  throw EnvironmentError("the templates of plugin projects are in none of: " + listed(folders) +
                         "; install Strata's SDK, which holds them");
}

Node read_defaults() {
  Node tree;
  tree.kind = NodeKind::Map;
  for (const Key& key : keys()) {
    const OptionSpec& option = key.option;
    if (key.required || option.type == "plugin" || option.type == "rule") continue;
    Node value = option.type == "text" ? Node{} : parse_value(option.default_text, "default");
    value.place = {"default"};
    value.origin = "default";
    if (option.type == "text") {
      value.kind = NodeKind::Scalar;
      value.quoted = true;
      value.text = option.default_text;
    }
    put_at(tree, option.name, value);
  }
  merge(tree, read_file((std::filesystem::path(configs_folder()) / defaults_file).string()));
  return tree;
}

}  // namespace strata::config
