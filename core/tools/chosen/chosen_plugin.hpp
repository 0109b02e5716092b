#pragma once
#include <strata/mesh.hpp>
#include <strata/plugin_context.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plugins/plugin_stack.hpp"
#include "plugins/registry.hpp"

namespace strata::cli {

using OptionTexts = std::vector<std::pair<std::string, std::string>>;

// Options of a command line as OPTION=VALUE, spelled as in a config. Throws UserError for another form.
OptionTexts options_of(const std::vector<std::string>& settings);

// A plugin chosen on the command line, with its options.
class ChosenPlugin {
 public:
  // Finds the plugin. `rank` and `mesh`: values of its context. Throws as registry.find(), and UserError for unknown
  // options.
  ChosenPlugin(plugins::PluginRegistry& registry, PluginKind kind, const std::string& name_or_path,
               const OptionTexts& options, int rank = 0, const MeshShape& mesh = {});

  const std::string& name() const { return context_->plugin_name(); }  // "optimizer/adamw"
  const OptionValues& options() const { return context_->options(); }
  // Creates the plugin; call once.
  template <class Interface>
  Interface& make() {
    return plugins_.push(
        name(), registry_.create<Interface>(found_.file.empty() ? found_.manifest.name : found_.file, *context_));
  }
  // Shuts the plugin down and throws its errors, which the destructor would ignore.
  void shutdown() { plugins_.shutdown(); }

 private:
  plugins::PluginRegistry& registry_;
  const plugins::FoundPlugin& found_;
  std::unique_ptr<PluginContext> context_;
  plugins::PluginStack plugins_;
};

}  // namespace strata::cli
