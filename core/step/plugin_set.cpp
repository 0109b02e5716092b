#include "step/plugin_set.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

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
      made.name, choice.options,
      plugin_host::Surroundings{rank_, mesh_, LogLevel::Debug, set_metric, nullptr, &own_exchange,
                                dynamic_cast<WeightCode*>(precision.plugin)}));
  try {
    made.plugin = &plugins_.push(made.name, registry.create<Kind>(choice.plugin, *contexts_.back()));
  } catch (const UserError& error) {  // options that only the plugin itself can judge
    throw UserError(choice.options_place, error.what());
  }
  all_.emplace_back(choice.slot, NamedPlugin<Plugin>{made.plugin, made.name});
  return made;
}

namespace {
void check_parameter_offload(const config::RunConfig& config, plugin_host::PluginRegistry& registry) {
  if (!config.offload.parameters) return;
  const plugin_host::Manifest& partitioner = registry.find(PluginKind::Partitioner, config.partitioner.plugin).manifest;
  if (std::ranges::find(partitioner.capabilities, Capability::ReleasesParameters) != partitioner.capabilities.end())
    return;
  throw UserError(config.offload.parameters->place,
                  "offload.parameters: " + config.offload.parameters->plugin +
                      " holds parameters between their uses, and " + full_name(partitioner) +
                      " keeps them on the device; leave it out, or choose a partitioner that declares " +
                      std::string(to_string(Capability::ReleasesParameters)));
}

void check_tensor_parallel(const config::RunConfig& config, plugin_host::PluginRegistry& registry) {
  if (config.parallel.tensor == 1) return;
  const plugin_host::Manifest& model = registry.find(PluginKind::Model, config.model.plugin.plugin).manifest;
  if (std::ranges::find(model.capabilities, Capability::TensorParallel) != model.capabilities.end()) return;
  throw UserError("parallel.tensor is " + std::to_string(config.parallel.tensor) + ", and " + full_name(model) +
                  " does not share its layers over ranks; set it to 1, or choose a model that declares " +
                  std::string(to_string(Capability::TensorParallel)));
}
}  // namespace

PluginSet::PluginSet(const config::RunConfig& config, plugin_host::PluginRegistry& registry, int rank,
                     bool with_communicator)
    : rank_(rank),
      mesh_{static_cast<int>(config.parallel.pipeline), static_cast<int>(config.parallel.data),
            static_cast<int>(config.parallel.tensor)} {
  std::vector<const plugin_host::Manifest*> manifests;
  for (const config::PluginChoice* choice : config.plugins())
    manifests.push_back(&registry.find(*plugin_kind_from_string(choice->kind), choice->plugin).manifest);
  plugin_host::check_capabilities(manifests);
  check_parameter_offload(config, registry);
  check_tensor_parallel(config, registry);

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

}  // namespace strata::runtime
