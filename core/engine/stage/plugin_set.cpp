#include "stage/plugin_set.hpp"

#include <spdlog/spdlog.h>

namespace strata::stage {

template <typename Kind>
NamedPlugin<Kind> PluginSet::make(const config::PluginChoice& choice, plugins::PluginRegistry& registry) {
  NamedPlugin<Kind> made;
  made.name = choice.kind + "/" + choice.name;
  const auto set_metric = [this](const std::string& name, const std::string& unit, double value) {
    const std::lock_guard lock(metrics_mutex_);
    metrics_[name] = {unit, value};
  };
  contexts_.push_back(std::make_unique<plugins::HostContext>(
      made.name, choice.options,
      plugins::Surroundings{rank_, mesh_, LogLevel::Debug, set_metric, nullptr, &own_exchange,
                            dynamic_cast<WeightCode*>(precision.plugin)}));
  try {
    made.plugin = &plugins_.push(made.name, registry.create<Kind>(choice.plugin, *contexts_.back()));
  } catch (const UserError& error) {  // options that only the plugin itself can judge
    throw UserError(choice.options_place, error.what());
  }
  all_.emplace_back(choice.slot, NamedPlugin<Plugin>{made.plugin, made.name});
  return made;
}

PluginSet::PluginSet(const config::RunConfig& config, plugins::PluginRegistry& registry, int rank,
                     bool with_communicator)
    : rank_(rank), mesh_(config.parallel.mesh) {
  device = make<Device>(config.device, registry);
  if (with_communicator) communicator = make<Communicator>(config.communicator.plugin, registry);
  model = make<Model>(config.model.plugin, registry);
  precision = make<PrecisionPolicy>(config.precision, registry);
  scheduler = make<Scheduler>(config.scheduler, registry);
  if (config.offload.parameters) parameter_offload = make<OffloadDevice>(*config.offload.parameters, registry);
  if (config.offload.optimizer) optimizer_offload = make<OffloadDevice>(*config.offload.optimizer, registry);
  if (config.offload.activations) activation_offload = make<OffloadDevice>(*config.offload.activations, registry);
  partitioner = make<Partitioner>(config.partitioner, registry);
  optimizer = make<Optimizer>(config.optimizer, registry);
  learning_rate = make<LearningRate>(config.learning_rate.plugin, registry);
  if (!config.data.path.empty()) data = make<DataSource>(config.data.plugin, registry);
  if (!config.validation.data.path.empty()) validation = make<DataSource>(config.validation.data.plugin, registry);
}

PluginSet::~PluginSet() {
  shutdown();
}

void PluginSet::shutdown(const Plugin* first) noexcept {
  try {
    plugins_.shutdown(first);
  } catch (const std::exception& error) {
    spdlog::error("{}", error.what());
  }
}

}  // namespace strata::stage
