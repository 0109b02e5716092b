#pragma once
#include <strata/communicator.hpp>
#include <strata/data_source.hpp>
#include <strata/device.hpp>
#include <strata/learning_rate.hpp>
#include <strata/mesh.hpp>
#include <strata/model.hpp>
#include <strata/offload_device.hpp>
#include <strata/optimizer.hpp>
#include <strata/partitioner.hpp>
#include <strata/precision_policy.hpp>
#include <strata/scheduler.hpp>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "config/run_config.hpp"
#include "group/group_provider.hpp"
#include "plugins/host_context.hpp"
#include "plugins/plugin_stack.hpp"
#include "plugins/registry.hpp"
#include "stage/named_plugin.hpp"
#include "stage/own_exchange_host.hpp"

namespace strata::stage {

// Metric that a plugin reports.
struct Metric {
  std::string unit;
  double value = 0.0;
};

// Plugins of one run on one rank: created in the order of the config's slots, shut down in reverse order.
class PluginSet {
 public:
  // Loads and creates all plugins; the communicator only if `with_communicator`.
  PluginSet(const config::RunConfig& config, plugins::PluginRegistry& registry, int rank, bool with_communicator);
  ~PluginSet();
  PluginSet(const PluginSet&) = delete;
  PluginSet& operator=(const PluginSet&) = delete;

  NamedPlugin<Device> device;
  NamedPlugin<Communicator> communicator;  // plugin is null without one
  NamedPlugin<Model> model;
  NamedPlugin<PrecisionPolicy> precision;
  NamedPlugin<Scheduler> scheduler;
  NamedPlugin<Partitioner> partitioner;
  NamedPlugin<Optimizer> optimizer;
  NamedPlugin<LearningRate> learning_rate;
  NamedPlugin<OffloadDevice> parameter_offload;   // plugin is null without one
  NamedPlugin<OffloadDevice> optimizer_offload;   // plugin is null without one
  NamedPlugin<OffloadDevice> activation_offload;  // plugin is null without one
  NamedPlugin<DataSource> data;                   // plugin is null without data.path
  NamedPlugin<DataSource> validation;             // plugin is null without validation.path

  OwnExchangeHost own_exchange;  // registrations by optimizer and partitioner

  // Returns all plugins with their config slots, in order of creation.
  const std::vector<std::pair<std::string, NamedPlugin<Plugin>>>& all() const { return all_; }

  // Shuts down `first` and later plugins, or all; each once. Errors are logged. The destructor calls it too.
  void shutdown(const Plugin* first = nullptr) noexcept;

  const MeshShape& mesh() const { return mesh_; }
  // Returns "partitioner/name.metric" -> metric, as set by plugins from any thread.
  std::map<std::string, Metric> metrics() const {
    const std::lock_guard lock(metrics_mutex_);
    return metrics_;
  }

 private:
  template <typename Kind>
  NamedPlugin<Kind> make(const config::PluginChoice& choice, plugins::PluginRegistry& registry);

  int rank_;
  MeshShape mesh_;
  mutable std::mutex metrics_mutex_;
  std::map<std::string, Metric> metrics_;
  std::vector<std::unique_ptr<PluginContext>> contexts_;
  std::vector<std::pair<std::string, NamedPlugin<Plugin>>> all_;
  plugins::PluginStack plugins_;
};

// Makes the provider of a rank's groups, once its plugins are there. [collective]
using MakeGroups = std::function<std::unique_ptr<group::GroupProvider>(
    const config::RunConfig& config, const plugins::PluginRegistry& registry, PluginSet& plugins)>;

}  // namespace strata::stage
