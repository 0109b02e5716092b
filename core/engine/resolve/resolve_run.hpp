#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.hpp"
#include "plugins/registry.hpp"
#include "resolve/dialect.hpp"

namespace strata::runtime {

struct ResolvedRun {
  std::shared_ptr<plugin_host::PluginRegistry> registry;
  config::RunConfig config;
  std::optional<config::Translation> translation;  // what every key did, where the config is in a dialect
};

// config::resolve, after a config in a dialect was translated; where model.init names a folder, with its config.json's
// values of the model's options. What a dialect's config leaves open its dialect then answers (Dialect::answer).
// `plugins` is the registry as the config sees it. Throws UserError. [any rank]
ResolvedRun resolve_run(std::vector<config::Node> trees, const config::World& world,
                        std::shared_ptr<plugin_host::PluginRegistry> registry, const config::PluginSource& plugins,
                        config::DataSection data = config::DataSection::Required);

// Reads a config file and settings (a.b=c), opens the registry that they name, and resolves. `extend` may add trees
// and a program's own plugins before that. Throws UserError. [any rank]
ResolvedRun read_run(
    const std::string& config_file, const std::vector<std::string>& settings, const config::World& world,
    config::DataSection data = config::DataSection::Required,
    const std::function<void(std::vector<config::Node>& trees, plugin_host::PluginRegistry& registry)>& extend = {});

}  // namespace strata::runtime
