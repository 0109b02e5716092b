#pragma once
#include <strata/mesh.hpp>
#include <strata/plugin_context.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plugin_host/plugin_stack.hpp"
#include "tools/bench/bench.hpp"

namespace strata::bench {

// OPTION=VALUE, each one as in a config. Throws UserError for another form.
std::vector<std::pair<std::string, std::string>> options_of(const std::vector<std::string>& settings);

// The plugin that a bench measures, with the options of the settings.
class PluginUnderTest {
 public:
  // `mesh`: the mesh that the plugin sees. Throws as run_bench does.
  PluginUnderTest(plugin_host::PluginRegistry& registry, PluginKind kind, const std::string& name_or_path,
                  const Settings& settings, const MeshShape& mesh);
  ~PluginUnderTest();

  const std::string& name() const { return name_; }  // "optimizer/adamw"
  const OptionValues& options() const { return context_->options(); }
  // Creates the plugin; call once.
  template <class Interface>
  Interface& make() {
    return plugins_.push(
        name_, registry_.create<Interface>(found_.file.empty() ? found_.manifest.name : found_.file, *context_));
  }
  // Shuts it down and throws its errors, which the destructor would ignore.
  void shutdown() { plugins_.shutdown(); }

 private:
  plugin_host::PluginRegistry& registry_;
  const plugin_host::FoundPlugin& found_;
  std::string name_;
  std::unique_ptr<PluginContext> context_;
  plugin_host::PluginStack plugins_;
};

}  // namespace strata::bench
