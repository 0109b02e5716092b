#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.hpp"
#include "plugins/registry.hpp"
#include "resolve/dialect.hpp"

namespace strata::resolve {

struct ResolvedRun {
  std::shared_ptr<plugins::PluginRegistry> registry;
  config::RunConfig config;
  std::optional<Translation> translation;  // translation of every key, for a config in a dialect
};

// Resolves a config: translates a dialect, calls config::resolve and, if model.init names a folder, takes model options
// from its config.json. The dialect supplies values that its config leaves open (Dialect::answer). `plugins`: the
// registry as config::PluginSource. Throws UserError. [any rank]
ResolvedRun resolve_run(std::vector<config::Node> trees, const config::World& world,
                        std::shared_ptr<plugins::PluginRegistry> registry, const config::PluginSource& plugins,
                        config::DataSection data = config::DataSection::Required);

// Reads a config file and settings (a.b=c), opens the registry that they name, and resolves. `extend` may add trees
// and a program's own plugins before that. Throws UserError. [any rank]
ResolvedRun read_run(
    const std::string& config_file, const std::vector<std::string>& settings, const config::World& world,
    config::DataSection data = config::DataSection::Required,
    const std::function<void(std::vector<config::Node>& trees, plugins::PluginRegistry& registry)>& extend = {});

}  // namespace strata::resolve
