#pragma once
#include <strata/error.hpp>
#include <strata/plugin.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace strata::plugin_host {

// Owns a run's plugins in the order they were made; each may use those made before it. They are shut down in the
// reverse order, all of them before the first is destroyed, and destroyed in the reverse order.
class PluginStack {
 public:
  PluginStack() = default;
  PluginStack(const PluginStack&) = delete;
  PluginStack& operator=(const PluginStack&) = delete;
  // Shuts down what was not. Errors of that are dropped: whoever wants them calls shutdown().
  ~PluginStack();

  // `name` is "kind/name", for errors.
  template <class Interface>
  Interface& push(const std::string& name, std::unique_ptr<Interface> plugin) {
    strata_check(!is_shut_down_, "no plugin is added after the shutdown");
    Interface& reference = *plugin;
    plugins_.push_back({name, std::move(plugin)});
    return reference;
  }

  // Once; a second call does nothing. A plugin that fails does not keep the others from being shut down; the first
  // error is thrown in the end, with its plugin's name.
  void shutdown();

 private:
  struct Named {
    std::string name;
    std::unique_ptr<Plugin> plugin;
  };
  std::vector<Named> plugins_;
  bool is_shut_down_ = false;
};

}  // namespace strata::plugin_host
