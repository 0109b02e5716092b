// A plugin's shared library opened by its path, without the engine: what a unit test of a plugin needs.
#pragma once
#include <strata/error.hpp>
#include <strata/fakes/plugin_context.hpp>
#include <strata/plugin.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace strata::fakes {

// Options that are not at their defaults, spelled as in a config: {{"bucket_size", "64MiB"}}.
using OptionTexts = std::vector<std::pair<std::string, std::string>>;

class PluginLibrary {
 public:
  // Loads `file` (an absolute path); it stays loaded until the process ends. Throws EnvironmentError with the loader's
  // reason, or when it exports no entry.
  explicit PluginLibrary(const std::string& file);

  const PluginEntry& entry() const { return *entry_; }
  const std::string& name() const { return name_; }  // "partitioner/mine"
  PluginKind kind() const { return kind_; }
  const std::vector<OptionSpec>& options() const { return options_; }  // the schema
  // Every option at its default but those changed. Throws UserError as a config would: unknown, malformed, out of
  // range.
  OptionValues values(const OptionTexts& changed = {}) const;

  // A new instance; `context` must outlive it. Throws what its constructor throws, Bug when it is of another kind.
  template <class Interface>
  std::unique_ptr<Interface> make(PluginContext& context) const {
    if (kind_of<Interface> != kind_) throw Bug(name_ + " is of another kind than the test takes it for");
    return std::unique_ptr<Interface>(static_cast<Interface*>(entry_->create(context)));
  }

 private:
  const PluginEntry* entry_ = nullptr;
  std::string name_;
  PluginKind kind_{};
  std::vector<OptionSpec> options_;
};

// One instance with the context it was made with. It is shut down when this goes, unless that was done.
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
