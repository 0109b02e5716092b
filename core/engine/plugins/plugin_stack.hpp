#pragma once
#include <strata/error.hpp>
#include <strata/plugin.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace strata::plugins {

// Owns a run's plugins in order of creation; a plugin may use those created before it. All are shut down in reverse
// order before any is destroyed; then they are destroyed in reverse order.
class PluginStack {
 public:
  PluginStack() = default;
  PluginStack(const PluginStack&) = delete;
  PluginStack& operator=(const PluginStack&) = delete;
  // Calls shutdown() if that was not done, and ignores its errors.
  ~PluginStack();

  // Adds a plugin. `name`: "kind/name", for error messages.
  template <class Interface>
  Interface& push(const std::string& name, std::unique_ptr<Interface> plugin) {
    strata_check(running_ == plugins_.size(), "no plugin is added after the shutdown");
    Interface& reference = *plugin;
    plugins_.push_back({name, std::move(plugin)});
    ++running_;
    return reference;
  }

  // Shuts down `first` and the plugins created after it; all, if null. Does nothing for those already shut down. If a
  // plugin fails, the others are still shut down; the first error is thrown at the end, with the plugin's name. A
  // plugin that does not return ends the process, see shutdown_watch.hpp.
  void shutdown(const Plugin* first = nullptr);

 private:
  struct Named {
    std::string name;
    std::unique_ptr<Plugin> plugin;
  };
  std::vector<Named> plugins_;
  std::size_t running_ = 0;  // number of running plugins, from the first
};

}  // namespace strata::plugins
