#pragma once
#include <strata/fakes/plugin_context.hpp>
#include <strata/plugin.hpp>

#include <memory>

#include "conformance/runner/case.hpp"

namespace strata::conformance {

// An instance of a plugin of any kind, with its context. finish() shuts it down and destroys it. If finish() is not
// called, the destructor does both, and drops an exception from shutdown().
class AnyPlugin {
 public:
  // Creates an instance. Throws the exceptions of the plugin's constructor.
  explicit AnyPlugin(Subject& subject, const fakes::OptionTexts& changed = {}, int rank = 0, MeshShape mesh = {});
  AnyPlugin(const AnyPlugin&) = delete;
  AnyPlugin& operator=(const AnyPlugin&) = delete;
  ~AnyPlugin();

  Plugin* operator->() const { return plugin_.get(); }
  Plugin& operator*() const { return *plugin_; }
  // Shuts the plugin down and destroys it. Throws the exceptions of shutdown().
  void shutdown();
  void finish();

 private:
  fakes::FakePluginContext context_;
  std::unique_ptr<Plugin> plugin_;
  bool is_shut_down_ = false;
};

}  // namespace strata::conformance
