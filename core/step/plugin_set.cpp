#include "step/plugin_set.hpp"

#include <spdlog/spdlog.h>
#include <strata/plugin_context.hpp>

#include "plugin_host/capability_rules.hpp"

namespace strata::runtime {

class PluginSet::Context final : public PluginContext {
 public:
  Context(std::string name, OptionValues options, int rank, const MeshShape& mesh, Metrics& metrics)
      : name_(std::move(name)), options_(std::move(options)), rank_(rank), mesh_(mesh), metrics_(metrics) {}

  const std::string& plugin_name() const override { return name_; }
  const OptionValues& options() const override { return options_; }
  int rank() const override { return rank_; }
  const MeshShape& mesh() const override { return mesh_; }

  void log(LogLevel level, const std::string& text) override {
    static constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info,
                                                           spdlog::level::warn, spdlog::level::err};
    spdlog::log(levels[static_cast<std::size_t>(level)], "{}: {}", name_, text);
  }
  void set_metric(const std::string& metric, const std::string& unit, double value) override {
    metrics_.set(name_ + "." + metric, {unit, value});
  }
  void* extension(const char*) override { return nullptr; }

 private:
  std::string name_;
  OptionValues options_;
  int rank_;
  const MeshShape& mesh_;
  Metrics& metrics_;
};

template <typename Kind>
NamedPlugin<Kind> PluginSet::make(const config::PluginChoice& choice, plugin_host::PluginRegistry& registry) {
  NamedPlugin<Kind> made;
  made.name = choice.kind + "/" + choice.name;
  contexts_.push_back(std::make_unique<Context>(made.name, choice.options, rank_, mesh_, metrics_));
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
  std::vector<plugin_host::Participant> participants;
  for (const config::PluginChoice* choice : config.plugins()) {
    const std::size_t dot = choice->slot.find('.');
    participants.push_back({&registry.find(*plugin_kind_from_string(choice->kind), choice->plugin).manifest,
                            dot == std::string::npos ? "" : choice->slot.substr(dot + 1)});
  }
  plugin_host::check_capabilities(participants);

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
