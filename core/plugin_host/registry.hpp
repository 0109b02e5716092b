// Which plugins there are, and making them. Finding and listing read manifests only; create() is the first to load a
// file.
#pragma once
#include <strata/plugin.hpp>
#include <strata/plugin_context.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "plugin_host/manifest.hpp"
#include "plugin_host/search_path.hpp"

namespace strata::plugin_host {

using PluginFactory = std::function<std::unique_ptr<Plugin>(PluginContext&)>;

struct FoundPlugin {
  Manifest manifest;    // as far as it could be read: name is empty when not even that
  std::string file;     // canonical path; empty for one that the program registered
  std::string origin;   // who named its folder, as in SearchFolder; "the config" for a path; "this program"
  std::string problem;  // why it cannot be used, to be read after the file's name; empty in what find() returns
  std::string
      shadowed_by;  // the file (or "this program") whose plugin of this name comes first; empty when this is the one
  PluginFactory factory;  // of one that the program registered
};

// Not thread-safe.
class PluginRegistry {
 public:
  // Folders are read when the first plugin is asked for.
  explicit PluginRegistry(std::vector<SearchFolder> folders);
  PluginRegistry(const PluginRegistry&) = delete;
  PluginRegistry& operator=(const PluginRegistry&) = delete;

  // Makes a plugin of this program known, before all files of its name. Throws Bug when it is known already or the name
  // is not made of a-z, 0-9 and _.
  void register_plugin(PluginKind kind, const std::string& name, PluginFactory factory,
                       std::vector<OptionSpec> options = {}, std::vector<Capability> capabilities = {});

  // The plugin of that name on the search path, or of that file for an absolute path. The reference stays valid as long
  // as the registry. Throws UserError when there is none (folders tried, names known, the nearest), when the path is
  // relative or is a plugin of another kind; EnvironmentError when the file that comes first cannot be used or shares
  // its name with another of its folder: the search then stops, it does not fall through to a later folder.
  const FoundPlugin& find(PluginKind kind, const std::string& name_or_path);

  // The plugin of a file, whatever its kind; `path` is absolute. Throws as find() does.
  const FoundPlugin& find_file(const std::string& path);

  // Every file on the search path and every registered plugin, in search order: shadowed and unusable ones too.
  std::vector<const FoundPlugin*> list();

  // Loads the plugin's library when it is the first of it, and makes an instance. An error from the plugin keeps its
  // class and gets the plugin's name in front; anything that is not a strata::Error becomes Bug.
  std::unique_ptr<Plugin> create(PluginKind kind, const std::string& name_or_path, PluginContext& context);

  // create<Partitioner>("sharded", context). The manifest's kind vouches for the class: a plugin that breaks that
  // promise does not compile (STRATA_PLUGIN). For a registered plugin the program answers.
  template <class Interface>
  std::unique_ptr<Interface> create(const std::string& name_or_path, PluginContext& context) {
    return std::unique_ptr<Interface>(
        static_cast<Interface*>(create(kind_of<Interface>, name_or_path, context).release()));
  }

  // What create() has used, in the order of first use.
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
  std::deque<FoundPlugin> files_;  // in search order
  std::deque<FoundPlugin> named_;  // by path
  std::vector<const FoundPlugin*> loaded_;
};

// A number that is equal where the same plugins were loaded in the same order: of names, manifests and the files'
// bytes, not of where the files lie. Ranks compare it before they exchange anything else. Throws EnvironmentError when
// a file cannot be read.
std::uint64_t digest(const std::vector<const FoundPlugin*>& plugins);

}  // namespace strata::plugin_host
