// A plugin's shared library, loaded by its path without the engine, for unit tests of a plugin.
#pragma once
#include <strata/error.hpp>
#include <strata/fakes/plugin_context.hpp>
#include <strata/plugin.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace strata::fakes {

// Options that differ from their defaults, as text in a config: {{"bucket_size", "64MiB"}}.
using OptionTexts = std::vector<std::pair<std::string, std::string>>;

class PluginLibrary {
 public:
  // Loads `file` (an absolute path), which stays loaded until the process ends. Throws EnvironmentError with the
  // loader's reason, or if it exports no entry.
  explicit PluginLibrary(const std::string& file);

  const PluginEntry& entry() const { return *entry_; }
  const std::string& name() const { return name_; }  // kind and name: "partitioner/mine"
  PluginKind kind() const { return kind_; }
  const std::vector<OptionSpec>& options() const { return options_; }  // schema of the options
  // Returns all options, with defaults filled in. Throws UserError as for a config: unknown, malformed or out of range.
  OptionValues values(const OptionTexts& changed = {}) const;

  // Makes an instance; `context` must outlive it. Throws errors of its constructor, or Bug if it is of another
  // kind.
  template <class Interface>
  std::unique_ptr<Interface> make(PluginContext& context) const {
    if (kind_of<Interface> != kind_) throw Bug("{} is of another kind than the test takes it for", name_);
    return std::unique_ptr<Interface>(static_cast<Interface*>(entry_->create(context)));
  }

 private:
  const PluginEntry* entry_ = nullptr;
  std::string name_;
  PluginKind kind_{};
  std::vector<OptionSpec> options_;
};

// An instance with its context. The destructor shuts it down unless that was done.
template <class Interface>
class LoadedPlugin {
 public:
  explicit LoadedPlugin(const PluginLibrary& library, const OptionTexts& changed = {}, int rank = 0,
                        MeshShape mesh = {})
      : context_(std::make_unique<FakePluginContext>(library.name(), library.values(changed), rank, mesh)),
        plugin_(library.make<Interface>(*context_)) {}
  LoadedPlugin(LoadedPlugin&&) noexcept = default;
  LoadedPlugin& operator=(LoadedPlugin&&) = delete;
  ~LoadedPlugin() {
    if (plugin_ != nullptr && !is_shut_down_) plugin_->shutdown();
  }
  Interface* operator->() const { return plugin_.get(); }
  Interface& operator*() const { return *plugin_; }
  const FakePluginContext& context() const { return *context_; }
  void shutdown() {
    is_shut_down_ = true;
    plugin_->shutdown();
  }

 private:
  std::unique_ptr<FakePluginContext> context_;
  std::unique_ptr<Interface> plugin_;
  bool is_shut_down_ = false;
};

}  // namespace strata::fakes
