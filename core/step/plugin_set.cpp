#include "step/plugin_set.hpp"

#include <spdlog/spdlog.h>

#include "plugin_host/capability_rules.hpp"

namespace strata::runtime {

template <typename Kind>
NamedPlugin<Kind> PluginSet::make(const config::PluginChoice& choice, plugin_host::PluginRegistry& registry) {
  NamedPlugin<Kind> made;
  made.name = choice.kind + "/" + choice.name;
  const auto set_metric = [this](const std::string& name, const std::string& unit, double value) {
    const std::lock_guard lock(metrics_mutex_);
    metrics_[name] = {unit, value};
  };
  contexts_.push_back(std::make_unique<plugin_host::HostContext>(
      made.name, choice.options, plugin_host::Surroundings{rank_, mesh_, LogLevel::Debug, set_metric}));
  try {
    made.plugin = &plugins_.push(made.name, registry.create<Kind>(choice.plugin, *contexts_.back()));
  } catch (const UserError& error) {  // options that only the plugin itself can judge
    throw UserError(choice.options_place, error.what());
  }
  all_.emplace_back(choice.slot, NamedPlugin<Plugin>{made.plugin, made.name});
  return made;
}

PluginSet::PluginSet(const config::RunConfig& config, plugin_host::PluginRegistry& registry, int rank,
                     bool with_communicator)
    : rank_(rank),
      mesh_{static_cast<int>(config.parallel.pipeline), static_cast<int>(config.parallel.data),
            static_cast<int>(config.parallel.tensor)} {
  std::vector<const plugin_host::Manifest*> manifests;
  for (const config::PluginChoice* choice : config.plugins())
    manifests.push_back(&registry.find(*plugin_kind_from_string(choice->kind), choice->plugin).manifest);
  plugin_host::check_capabilities(manifests);

  device = make<Device>(config.device, registry);
  if (with_communicator) communicator = make<Communicator>(config.communicator.plugin, registry);
  model = make<Model>(config.model.plugin, registry);
  precision = make<PrecisionPolicy>(config.precision, registry);
  scheduler = make<Scheduler>(config.scheduler, registry);
  partitioner = make<Partitioner>(config.partitioner, registry);
  optimizer = make<Optimizer>(config.optimizer, registry);
  learning_rate = make<LearningRate>(config.learning_rate.plugin, registry);
  if (config.offload.optimizer) optimizer_offload = make<OffloadDevice>(*config.offload.optimizer, registry);
  if (!config.data.path.empty()) data = make<DataSource>(config.data.plugin, registry);
  if (!config.validation.data.path.empty()) validation = make<DataSource>(config.validation.data.plugin, registry);
}

PluginSet::~PluginSet() {
  shutdown();
}

void PluginSet::shutdown() noexcept {
  try {
    plugins_.shutdown();
  } catch (const std::exception& error) {
    spdlog::error("{}", error.what());
  }
}

}  // namespace strata::runtime
