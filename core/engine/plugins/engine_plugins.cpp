#include "plugins/engine_plugins.hpp"

#include <strata/communicator.hpp>
#include <strata/device.hpp>
#include <strata/error.hpp>

#include <algorithm>

#include "plugins/host_context.hpp"

namespace strata::plugins {

namespace {

PluginKind kind_of_name(const std::string& kind) {
  const std::optional<PluginKind> found = plugin_kind_from_string(kind);
  if (!found) throw Bug("unknown kind of plugin: {}", kind);
  return *found;
}

}  // namespace

std::shared_ptr<PluginRegistry> open_registry(const std::string& plugin_path) {
  return std::make_shared<PluginRegistry>(search_folders(plugin_path));
}

std::unique_ptr<PluginContext> asking_context(const FoundPlugin& plugin) {
  return asking_context(plugin, default_options(plugin.manifest.options));
}

std::unique_ptr<PluginContext> asking_context(const FoundPlugin& plugin, OptionValues options, OptionsInFile* in_file) {
  return std::make_unique<HostContext>(full_name(plugin.manifest), std::move(options),
                                       Surroundings{.in_file = in_file});
}

std::optional<config::PluginSchema> EnginePlugins::find(const std::string& kind, const std::string& plugin) const {
  if (plugin.find('/') == std::string::npos) {
    const std::vector<std::string> known = names(kind);
    if (std::find(known.begin(), known.end(), plugin) == known.end()) return std::nullopt;
  }
  const FoundPlugin& found = registry_->find(kind_of_name(kind), plugin);
  return config::PluginSchema{found.manifest.name, found.manifest.options, found.manifest.capabilities};
}

std::vector<std::string> EnginePlugins::names(const std::string& kind) const {
  std::vector<std::string> names;
  for (const FoundPlugin* plugin : registry_->list())
    if (!plugin->manifest.name.empty() && to_string(plugin->manifest.kind) == kind && plugin->shadowed_by.empty())
      names.push_back(plugin->manifest.name);
  return names;
}

std::string EnginePlugins::obstacle(const std::string& kind, const std::string& plugin) const {
  const PluginKind which = kind_of_name(kind);
  if (which != PluginKind::Device && which != PluginKind::Communicator) return "";
  try {
    const FoundPlugin& found = registry_->find(which, plugin);
    const std::unique_ptr<PluginContext> context = asking_context(found);
    if (which == PluginKind::Device) {
      const std::unique_ptr<Device> device = registry_->create<Device>(plugin, *context);
      return device->count() > 0 ? "" : device->why();
    }
    return registry_->create<Communicator>(plugin, *context)->unavailable();
  } catch (const Error& error) {
    return error.what();
  }
}

std::string EnginePlugins::missing(const std::string& kind, const std::string& plugin) const {
  try {
    registry_->find(kind_of_name(kind), plugin);
  } catch (const Error& error) {
    return error.what();
  }
  return "there is no " + kind + " plugin '" + plugin + "'";
}

}  // namespace strata::plugins
