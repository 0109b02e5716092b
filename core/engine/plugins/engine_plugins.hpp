// The plugin registry as a source for configs.
#pragma once
#include <strata/options_in_file.hpp>
#include <strata/plugin_context.hpp>

#include <memory>
#include <string>

#include "config/plugin_source.hpp"
#include "plugins/registry.hpp"

namespace strata::plugins {

// Opens a registry that searches `plugin_path` (folders separated by colons, may be empty) before the usual folders.
std::shared_ptr<PluginRegistry> open_registry(const std::string& plugin_path);

// Returns a context for a plugin that is only queried: one rank, default options, no log.
std::unique_ptr<PluginContext> asking_context(const FoundPlugin& plugin);
// Returns a context for queries with the given options. `in_file`, if not null, must outlive the context; a model
// reports to it which options its config.json sets.
std::unique_ptr<PluginContext> asking_context(const FoundPlugin& plugin, OptionValues options,
                                              OptionsInFile* in_file = nullptr);

// Implements config::PluginSource from manifests; loads only Device and Communicator plugins, to check if they are
// usable here.
class EnginePlugins final : public config::PluginSource {
 public:
  explicit EnginePlugins(std::shared_ptr<PluginRegistry> registry) : registry_(std::move(registry)) {}
  std::optional<config::PluginSchema> find(const std::string& kind, const std::string& plugin) const override;
  std::vector<std::string> names(const std::string& kind) const override;
  std::string obstacle(const std::string& kind, const std::string& plugin) const override;
  std::string missing(const std::string& kind, const std::string& plugin) const override;

 private:
  std::shared_ptr<PluginRegistry> registry_;
};

}  // namespace strata::plugins
