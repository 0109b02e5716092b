// Finds, lists and creates plugins. Finding and listing only read manifests; create() loads the library.
#pragma once
#include <strata/plugin.hpp>
#include <strata/plugin_context.hpp>

#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "plugins/manifest.hpp"

namespace strata::plugins {

struct SearchFolder {
  std::filesystem::path folder;
  std::string origin;  // source of the folder: "plugin_path", "STRATA_PLUGIN_PATH", "installed with Strata"
};

// Returns the folders searched for plugins, in order: the config's plugin_path, the environment variable
// STRATA_PLUGIN_PATH (both separated by colons, empty parts skipped), strata/plugins beside this libstrata.so.
// Duplicates are dropped. Throws UserError for a relative folder: the current folder is never searched, so that a run
// does not depend on where it is started.
std::vector<SearchFolder> search_folders(const std::string& plugin_path);

using PluginFactory = std::function<std::unique_ptr<Plugin>(PluginContext&)>;

struct FoundPlugin {
  Manifest manifest;    // as far as it could be read; name may be empty
  std::string file;     // canonical path; empty for a plugin that the program registered
  std::string origin;   // source of its folder, as in SearchFolder; "the config" for a path; or "this program"
  std::string problem;  // why it is unusable, to be appended to the file's name; empty for results of find()
  std::string
      shadowed_by;  // the file (or "this program") whose plugin of this name comes first; empty when this is the one
  PluginFactory factory;  // set for a plugin that the program registered
};

// Registry of all plugins that can be found. Not thread-safe.
class PluginRegistry {
 public:
  // Takes the folders, which are scanned on first use.
  explicit PluginRegistry(std::vector<SearchFolder> folders);
  PluginRegistry(const PluginRegistry&) = delete;
  PluginRegistry& operator=(const PluginRegistry&) = delete;

  // Registers a plugin of this program; it takes precedence over files of the same name. Throws Bug if it is already
  // registered or the name is invalid.
  void register_plugin(PluginKind kind, const std::string& name, PluginFactory factory,
                       std::vector<OptionSpec> options = {}, std::vector<Capability> capabilities = {});

  // Returns the plugin of a name on the search path, or in the file of an absolute path. The reference stays valid as
  // long as the registry. Throws UserError if there is none (with the folders tried, the known names and the nearest),
  // or if the path is relative or a plugin of another kind; EnvironmentError if the first match cannot be used or
  // another file of its folder has the same name: the search does not continue in later folders.
  const FoundPlugin& find(PluginKind kind, const std::string& name_or_path);

  // Returns the plugin in a file, of any kind; `path` is absolute. Throws as find() does.
  const FoundPlugin& find_file(const std::string& path);

  // Returns all files on the search path and registered plugins, in search order, with shadowed and unusable ones.
  std::vector<const FoundPlugin*> list();

  // Loads the plugin's library if necessary and creates an instance. Errors from the plugin get its name as prefix;
  // anything that is not a strata::Error becomes Bug.
  std::unique_ptr<Plugin> create(PluginKind kind, const std::string& name_or_path, PluginContext& context);

  // Creates a plugin by its interface: create<Partitioner>("sharded", context). The cast is safe because STRATA_PLUGIN
  // does not compile if the class does not match the kind; for a registered plugin the program is responsible.
  template <class Interface>
  std::unique_ptr<Interface> create(const std::string& name_or_path, PluginContext& context) {
    return std::unique_ptr<Interface>(
        static_cast<Interface*>(create(kind_of<Interface>, name_or_path, context).release()));
  }

  // Returns the plugins that create() has used, in order of first use.
  const std::vector<const FoundPlugin*>& loaded() const { return loaded_; }

  const std::vector<SearchFolder>& folders() const { return folders_; }

 private:
  void scan();
  void scan_folder(const SearchFolder& folder);
  void mark_shadowed();
  [[noreturn]] void not_found(PluginKind kind, const std::string& name);

  std::vector<SearchFolder> folders_;
  bool scanned_ = false;
  std::deque<FoundPlugin> registered_;
  std::deque<FoundPlugin> files_;  // files in search order
  std::deque<FoundPlugin> named_;  // files named by path
  std::vector<const FoundPlugin*> loaded_;
};

}  // namespace strata::plugins
