#include "plugins/registry.hpp"

#include <strata/error.hpp>
#include <strata/input_file.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "config/defaults.hpp"
#include "plugins/elf_section.hpp"
#include "plugins/library.hpp"
#include "plugins/plugin_call.hpp"
#include "text/nearest.hpp"

namespace strata::plugins {
namespace {

namespace fs = std::filesystem;

// Gate one for one file; never throws because of the file's contents.
FoundPlugin read_file(const fs::path& file, const std::string& origin) {
  FoundPlugin plugin;
  plugin.file = file.string();
  plugin.origin = origin;
  try {
    parse_manifest(read_elf_section(plugin.file, ".strata"), plugin.manifest);
  } catch (const DamagedFile& damage) {
    plugin.problem = damage.what();
  }
  return plugin;
}

// A file without a readable manifest is found by its file name, so that requesting it reports what is wrong with it.
bool answers_to(const FoundPlugin& plugin, PluginKind kind, const std::string& name) {
  if (!plugin.manifest.name.empty()) return plugin.manifest.kind == kind && plugin.manifest.name == name;
  const std::string file_name = "libstrata_" + std::string(to_string(kind)) + "_" + name + ".so";
  return fs::path(plugin.file).filename() == file_name;
}

void add_folder(std::vector<SearchFolder>& folders, const fs::path& folder, const std::string& origin) {
  if (!folder.is_absolute()) {
    throw UserError(
        "{} names the relative folder '{}'; give an absolute path, because the current folder is never searched",
        origin, folder.string());
  }
  std::error_code ignored;  // a missing folder keeps its spelling
  const fs::path canonical = fs::weakly_canonical(folder, ignored);
  const fs::path& kept = canonical.empty() ? folder : canonical;
  const auto same = [&](const SearchFolder& other) { return other.folder == kept; };
  if (std::none_of(folders.begin(), folders.end(), same)) folders.push_back({kept, origin});
}

void add_folders(std::vector<SearchFolder>& folders, const std::string& path, const std::string& origin) {
  std::istringstream parts(path);
  for (std::string folder; std::getline(parts, folder, ':');)
    if (!folder.empty()) add_folder(folders, folder, origin);
}

[[noreturn]] void unusable(const FoundPlugin& plugin) {
  throw EnvironmentError("plugin file {} {}", plugin.file, plugin.problem);
}

}  // namespace

std::vector<SearchFolder> search_folders(const std::string& plugin_path) {
  std::vector<SearchFolder> folders;
  add_folders(folders, plugin_path, "plugin_path");
  if (const char* const variable = std::getenv("STRATA_PLUGIN_PATH"))
    add_folders(folders, variable, "STRATA_PLUGIN_PATH");
  add_folder(folders, config::library_folder() / "strata" / "plugins", "installed with Strata");
  return folders;
}

PluginRegistry::PluginRegistry(std::vector<SearchFolder> folders) : folders_(std::move(folders)) {}

void PluginRegistry::register_plugin(PluginKind kind, const std::string& name, PluginFactory factory,
                                     std::vector<OptionSpec> options, std::vector<Capability> capabilities) {
  strata_check(is_plugin_name(name), "a plugin's name is made of a-z, 0-9 and _, and does not begin with _");
  strata_check(factory != nullptr, "a registered plugin has a factory");
  for (const FoundPlugin& other : registered_) {
    if (answers_to(other, kind, name)) throw Bug("the program registered {} twice", full_name(kind, name));
  }
  FoundPlugin plugin;
  plugin.manifest.kind = kind;
  plugin.manifest.name = name;
  plugin.manifest.version = STRATA_ABI_TEXT;
  plugin.manifest.description = "registered by this program";
  plugin.manifest.capabilities = std::move(capabilities);
  plugin.manifest.abi = {STRATA_ABI_MAJOR, STRATA_ABI_MINOR};
  plugin.manifest.fingerprint = host_fingerprint();
  plugin.manifest.options = std::move(options);
  plugin.origin = "this program";
  plugin.factory = std::move(factory);
  registered_.push_back(std::move(plugin));
  if (scanned_) mark_shadowed();
}

void PluginRegistry::scan() {
  if (scanned_) return;
  for (const SearchFolder& folder : folders_) scan_folder(folder);
  mark_shadowed();
  scanned_ = true;
}

void PluginRegistry::scan_folder(const SearchFolder& folder) {
  std::set<fs::path> libraries;  // canonical: a symbolic link and its target count once
  std::error_code error;
  for (fs::directory_iterator entry(folder.folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() != ".so") continue;
    std::error_code dangling;
    const fs::path canonical = fs::canonical(entry->path(), dangling);
    libraries.insert(dangling ? entry->path() : canonical);
  }
  std::map<std::string, std::vector<FoundPlugin*>> by_name;
  for (const fs::path& library : libraries) {
    FoundPlugin& plugin = files_.emplace_back(read_file(library, folder.origin));
    if (!plugin.manifest.name.empty()) by_name[full_name(plugin.manifest)].push_back(&plugin);
  }
  for (const auto& [name, plugins] : by_name) {
    if (plugins.size() < 2) continue;
    for (FoundPlugin* const plugin : plugins) {
      const FoundPlugin* const other = plugin == plugins[0] ? plugins[1] : plugins[0];
      plugin->problem =
          "is " + name + ", and so is " + other->file + "; a folder can hold one plugin of a name: remove one";
    }
  }
}

void PluginRegistry::mark_shadowed() {
  std::map<std::string, std::string> first;  // by kind/name: who comes first
  for (const FoundPlugin& plugin : registered_) first.emplace(full_name(plugin.manifest), plugin.origin);
  for (FoundPlugin& plugin : files_) {
    if (plugin.manifest.name.empty()) continue;
    const auto [winner, is_first] = first.emplace(full_name(plugin.manifest), plugin.file);
    const bool same_folder = fs::path(winner->second).parent_path() == fs::path(plugin.file).parent_path();
    plugin.shadowed_by = is_first || same_folder ? "" : winner->second;
  }
}

const FoundPlugin& PluginRegistry::find(PluginKind kind, const std::string& name_or_path) {
  if (name_or_path.find('/') != std::string::npos) {
    const FoundPlugin& plugin = find_file(name_or_path);
    if (plugin.manifest.kind == kind) return plugin;
    throw UserError("plugin file {} is {}, but a {} is needed here", name_or_path, full_name(plugin.manifest),
                    to_string(kind));
  }
  for (const FoundPlugin& plugin : registered_) {
    if (answers_to(plugin, kind, name_or_path)) return plugin;
  }
  scan();
  for (const FoundPlugin& plugin : files_) {
    if (!answers_to(plugin, kind, name_or_path)) continue;
    if (!plugin.problem.empty()) unusable(plugin);
    return plugin;
  }
  not_found(kind, name_or_path);
}

const FoundPlugin& PluginRegistry::find_file(const std::string& path) {
  if (!fs::path(path).is_absolute()) {
    throw UserError("plugin '{}' is a relative path; give a name or an absolute path", path);
  }
  std::error_code missing;
  const fs::path canonical = fs::canonical(path, missing);
  if (missing) throw_cannot_open("plugin file " + path, "cannot be found", missing.value());
  const auto same = [&](const FoundPlugin& plugin) { return plugin.file == canonical; };
  auto found = std::find_if(named_.begin(), named_.end(), same);
  if (found == named_.end()) found = named_.insert(named_.end(), read_file(canonical, "the config"));
  if (!found->problem.empty()) unusable(*found);
  return *found;
}

void PluginRegistry::not_found(PluginKind kind, const std::string& name) {
  std::vector<std::string> known;
  std::string other_kind;
  std::string unreadable;
  for (const FoundPlugin* const plugin : list()) {
    const Manifest& manifest = plugin->manifest;
    if (manifest.name.empty()) {
      unreadable += "; " + plugin->file + " " + plugin->problem;
    } else if (manifest.kind == kind && plugin->problem.empty() && plugin->shadowed_by.empty()) {
      known.push_back(manifest.name);
    } else if (manifest.name == name && manifest.kind != kind) {
      other_kind = " (" + full_name(manifest) + " is another kind)";
    }
  }
  std::string text = "no plugin " + full_name(kind, name) + other_kind;
  if (const std::string best = text::near(name, known); !best.empty()) text += "; did you mean " + best + "?";
  if (!known.empty()) text += "; known:";
  for (const std::string& one : known) text += " " + one;
  if (known.empty()) text += "; no " + std::string(to_string(kind)) + " plugin is known";
  text += "; folders tried:";
  for (const SearchFolder& folder : folders_) {
    std::error_code ignored;
    const bool there = fs::is_directory(folder.folder, ignored);
    text += " " + folder.folder.string() + " (" + folder.origin + (there ? ")" : ", not there)");
  }
  throw UserError(text + unreadable);
}

std::vector<const FoundPlugin*> PluginRegistry::list() {
  scan();
  std::vector<const FoundPlugin*> all;
  for (const FoundPlugin& plugin : registered_) all.push_back(&plugin);
  for (const FoundPlugin& plugin : files_) all.push_back(&plugin);
  return all;
}

std::unique_ptr<Plugin> PluginRegistry::create(PluginKind kind, const std::string& name_or_path,
                                               PluginContext& context) {
  const FoundPlugin& found = find(kind, name_or_path);
  PluginFactory factory = found.factory;
  if (!factory) {
    try {
      const PluginEntry& entry = load_library(found.file, found.manifest);
      factory = [&entry](PluginContext& given) { return std::unique_ptr<Plugin>(entry.create(given)); };
    } catch (const DamagedFile& damage) {
      throw EnvironmentError("plugin file {} {}", found.file, damage.what());
    }
  }
  const std::string name = full_name(found.manifest);
  std::unique_ptr<Plugin> plugin = plugin_call(name, "create", [&] { return factory(context); });
  if (!plugin) throw Bug("plugin {}: create: the factory returned nothing", name);
  if (!found.factory && plugin->state_version() != found.manifest.state_version) {
    throw Bug("plugin {} contradicts itself: state_version() is {}, STATE_VERSION in its manifest is {}", name,
              plugin->state_version(), found.manifest.state_version);
  }
  if (std::find(loaded_.begin(), loaded_.end(), &found) == loaded_.end()) loaded_.push_back(&found);
  return plugin;
}

}  // namespace strata::plugins
