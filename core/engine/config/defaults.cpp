#include "config/defaults.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "config/keys.hpp"

namespace strata::config {
namespace {

namespace fs = std::filesystem;

constexpr const char* defaults_file = "defaults.yaml";

// share/strata/NAME next to lib, in an installed tree and in a build folder; also where the library lies one folder
// deeper, as in lib/x86_64-linux-gnu.
std::vector<fs::path> installed_folders(const std::string& name) {
  const fs::path folder = library_folder().parent_path();
  return {folder / "share/strata" / name, folder.parent_path() / "share/strata" / name};
}

// The first of `folders` that holds `file`; throws `missing`, the folders, `remedy`.
std::string first_that_holds(const std::string& file, const std::vector<fs::path>& folders, const std::string& missing,
                             const std::string& remedy) {
  std::string tried;
  for (const fs::path& folder : folders) {
    std::error_code error;
    if (fs::exists(folder / file, error)) return folder.string();
    tried += (tried.empty() ? "" : ", ") + folder.string();
  }
  throw EnvironmentError("{} in none of: {}; {}", missing, tried, remedy);
}

}  // namespace

fs::path library_folder() {
  Dl_info library{};
  if (dladdr(reinterpret_cast<const void*>(&library_folder), &library) == 0 || library.dli_fname == nullptr)
    throw EnvironmentError("cannot find where libstrata.so is loaded from; link it dynamically");
  return fs::weakly_canonical(fs::absolute(library.dli_fname)).parent_path();
}

std::string configs_folder() {
  const char* chosen = std::getenv("STRATA_CONFIG_DIR");  // and no other folder: a wrong one must not go unnoticed
  const bool is_chosen = chosen != nullptr && *chosen != '\0';
  return first_that_holds(defaults_file, is_chosen ? std::vector<fs::path>{chosen} : installed_folders("configs"),
                          std::string(defaults_file) + " is",
                          "set STRATA_CONFIG_DIR to the folder that holds it (configs in the source tree)");
}

std::string templates_folder() {
  return first_that_holds("", installed_folders("templates"), "the templates of plugin projects are",
                          "install Strata's SDK, which holds them");
}

Node read_defaults() {
  Node tree = empty_section();
  for (const Key& key : keys()) {
    const OptionSpec& option = key.option;
    if (key.required || option.type == "plugin" || option.type == "rule") continue;
    const bool is_text = option.type == "text";  // even if YAML reads it as something else
    Node value = parse_value(is_text ? "\"\"" : option.default_text, "default");
    if (is_text) value.text = option.default_text;
    put_at(tree, option.name, value);
  }
  merge(tree, read_file((fs::path(configs_folder()) / defaults_file).string()));
  return tree;
}

}  // namespace strata::config
