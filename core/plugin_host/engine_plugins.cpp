#include "plugin_host/engine_plugins.hpp"

#include <strata/communicator.hpp>
#include <strata/device.hpp>
#include <strata/error.hpp>
#include <strata/plugin_context.hpp>

#include <algorithm>
#include <sstream>

namespace strata::plugin_host {

namespace {

class AskingContext final : public PluginContext {
 public:
  AskingContext(std::string name, OptionValues options, OptionsInFile* in_file)
      : name_(std::move(name)), options_(std::move(options)), in_file_(in_file) {}
  const std::string& plugin_name() const override { return name_; }
  const OptionValues& options() const override { return options_; }
  int rank() const override { return 0; }
  const MeshShape& mesh() const override { return mesh_; }
  void log(LogLevel, const std::string&) override {}
  void set_metric(const std::string&, const std::string&, double) override {}
  void* extension(const char* id) override {
    return std::string_view(id) == OptionsInFile::id ? static_cast<void*>(in_file_) : nullptr;
  }

 private:
  std::string name_;
  OptionValues options_;
  OptionsInFile* in_file_;
  MeshShape mesh_;
};

PluginKind kind_of_name(const std::string& kind) {
  const std::optional<PluginKind> found = plugin_kind_from_string(kind);
  if (!found) throw Bug("unknown kind of plugin: " + kind);
  return *found;
}

}  // namespace

std::shared_ptr<PluginRegistry> open_registry(const std::string& plugin_path) {
  std::vector<std::string> folders;
  std::istringstream parts(plugin_path);
  for (std::string folder; std::getline(parts, folder, ':');)
    if (!folder.empty()) folders.push_back(folder);
  return std::make_shared<PluginRegistry>(search_folders(folders));
}

std::unique_ptr<PluginContext> asking_context(const FoundPlugin& plugin) {
  return asking_context(plugin, default_options(plugin.manifest.options));
}

std::unique_ptr<PluginContext> asking_context(const FoundPlugin& plugin, OptionValues options, OptionsInFile* in_file) {
  return std::make_unique<AskingContext>(full_name(plugin.manifest), std::move(options), in_file);
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

}  // namespace strata::plugin_host
