#include "tools/bench/bench.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <filesystem>

#include "config/defaults.hpp"
#include "plugin_host/engine_plugins.hpp"
#include "tools/bench/bench_ranks.hpp"
#include "tools/bench/kinds.hpp"
#include "tools/bench/plugin_under_test.hpp"
#include "tools/compare/paired_ratio.hpp"

namespace strata::bench {

namespace {

constexpr std::int64_t kibi = 1024, mebi = 1024 * kibi;

// One size that fits in the caches and one that does not.
Sizes default_sizes(PluginKind kind) {
  switch (kind) {
    case PluginKind::Communicator:
      return {64 * kibi, mebi, 16 * mebi};
    case PluginKind::Partitioner:
      return {256 * kibi, 8 * mebi};
    case PluginKind::PrecisionPolicy:
      return {256, 1024};
    case PluginKind::Scheduler:
      return {8, 64};
    case PluginKind::Model:
      return {128};
    case PluginKind::DataSource:
      return {512};
    case PluginKind::Device:
    case PluginKind::OffloadDevice:
    case PluginKind::Optimizer:
    case PluginKind::LearningRate:
      break;
  }
  return {mebi, 64 * mebi};
}

std::string first_usable_communicator(plugin_host::PluginRegistry& registry) {
  const std::shared_ptr<plugin_host::PluginRegistry> borrowed(&registry, [](plugin_host::PluginRegistry*) {});
  const plugin_host::EnginePlugins plugins(borrowed);
  const config::Node defaults = config::read_defaults();
  const config::Node* list = config::find(defaults, "automatic.communicator.cpu");
  strata_check(list != nullptr && list->kind == config::NodeKind::Sequence,
               "defaults.yaml lists communicators of the cpu");
  std::string reasons;
  for (const config::Node& name : list->items) {
    if (!plugins.find("communicator", name.text)) continue;
    const std::string obstacle = plugins.obstacle("communicator", name.text);
    if (obstacle.empty()) return name.text;
    reasons += (reasons.empty() ? "" : "; ") + name.text + ": " + obstacle;
  }
  throw EnvironmentError("no plugin of automatic.communicator works on this machine" +
                         (reasons.empty() ? "" : " (" + reasons + ")") + "; choose one with --communicator");
}

std::vector<Row> run_communicator(plugin_host::PluginRegistry& registry, const std::string& name,
                                  const Settings& settings, const Sizes& sizes) {
  PluginUnderTest plugin(registry, PluginKind::Communicator, name, settings, {1, settings.place.size, 1});
  BenchRanks ranks(plugin.make<Communicator>(), settings);
  std::vector<Row> rows = bench_communicator(ranks.all(), sizes, InterleavedTimer(settings, &ranks.all()));
  ranks.all().barrier();
  return rows;
}

std::vector<Row> run_partitioner(plugin_host::PluginRegistry& registry, const std::string& name,
                                 const Settings& settings, const Sizes& sizes) {
  Settings beside = settings;
  beside.options.clear();
  const MeshShape mesh{1, settings.place.size, 1};
  PluginUnderTest connecting(
      registry, PluginKind::Communicator,
      settings.communicator.empty() ? first_usable_communicator(registry) : settings.communicator, beside, mesh);
  BenchRanks ranks(connecting.make<Communicator>(), settings);
  const MakePlugin make = [&] {
    return std::make_unique<PluginUnderTest>(registry, PluginKind::Partitioner, name, settings, mesh);
  };
  const std::unique_ptr<PluginUnderTest> asked = make();
  const NamedGroups groups = ranks.connect(asked->make<Partitioner>().groups(mesh));
  std::vector<Row> rows = bench_partitioner(make, groups, sizes, InterleavedTimer(settings, &ranks.all()));
  ranks.all().barrier();
  return rows;
}

// An offload device that writes files has an option `path`; its floor writes to the same folder.
std::string folder_of(const PluginUnderTest& plugin) {
  if (plugin.options().contains("path")) {
    const auto* path = std::get_if<std::string>(&plugin.options().value("path"));
    if (path != nullptr && !path->empty()) return *path;
  }
  return std::filesystem::temp_directory_path().string();
}

std::vector<Row> run_alone(PluginUnderTest& plugin, PluginKind kind, const Sizes& sizes,
                           const InterleavedTimer& timer) {
  switch (kind) {
    case PluginKind::Device:
      return bench_device(plugin.make<Device>(), sizes, timer);
    case PluginKind::PrecisionPolicy:
      return bench_precision(plugin.make<PrecisionPolicy>(), sizes, timer);
    case PluginKind::Scheduler:
      return bench_scheduler(plugin.name(), plugin.make<Scheduler>(), sizes, timer);
    case PluginKind::OffloadDevice:
      return bench_offload(plugin.make<OffloadDevice>(), folder_of(plugin), sizes, timer);
    case PluginKind::Optimizer:
      return bench_optimizer(plugin.make<Optimizer>(), sizes, timer);
    case PluginKind::Model:
      return bench_model(plugin.make<Model>(), sizes, timer);
    case PluginKind::DataSource:
      return bench_data(plugin.make<DataSource>(), sizes, timer);
    case PluginKind::LearningRate:
      throw UserError(plugin.name() + ": a learning rate is a few operations on integers; there is nothing to measure");
    case PluginKind::Communicator:
    case PluginKind::Partitioner:
      break;
  }
  throw Bug("this kind is measured between ranks");
}

}  // namespace

bool needs_ranks(PluginKind kind) {
  return kind == PluginKind::Communicator || kind == PluginKind::Partitioner;
}

std::string size_meaning(PluginKind kind) {
  switch (kind) {
    case PluginKind::Communicator:
      return "bytes of the whole buffer";
    case PluginKind::Partitioner:
      return "bytes of a layer's parameters";
    case PluginKind::PrecisionPolicy:
      return "the rows and columns of a weight";
    case PluginKind::Scheduler:
      return "micro-batches";
    case PluginKind::Model:
      return "tokens";
    case PluginKind::DataSource:
      return "tokens of a sample";
    case PluginKind::OffloadDevice:
      return "bytes of a transfer";
    case PluginKind::Device:
    case PluginKind::Optimizer:
    case PluginKind::LearningRate:
      break;
  }
  return "bytes of a parameter in fp32";
}

void check_usable(plugin_host::PluginRegistry& registry, PluginKind kind, const std::string& name_or_path) {
  const std::shared_ptr<plugin_host::PluginRegistry> borrowed(&registry, [](plugin_host::PluginRegistry*) {});
  const std::string name = full_name(registry.find(kind, name_or_path).manifest);
  const std::string obstacle =
      plugin_host::EnginePlugins(borrowed).obstacle(std::string(to_string(kind)), name_or_path);
  if (!obstacle.empty()) throw EnvironmentError(name + " cannot be measured here: " + obstacle);
}

std::vector<Row> run_bench(plugin_host::PluginRegistry& registry, PluginKind kind, const std::string& name_or_path,
                           const Settings& settings) {
  strata_check(settings.rounds >= report::smallest_pairs, "a bench has enough rounds for an interval");
  check_usable(registry, kind, name_or_path);
  const Sizes sizes = settings.sizes.empty() ? default_sizes(kind) : settings.sizes;
  for (const std::int64_t size : sizes)
    if (size < 1 || (kind == PluginKind::Scheduler && size > 4096) ||
        (kind == PluginKind::PrecisionPolicy && size > 32768) || (kind == PluginKind::DataSource && size > 65536))
      throw UserError("--size " + std::to_string(size) + " is out of range; for this kind it is " + size_meaning(kind));
  if (kind == PluginKind::Communicator) return run_communicator(registry, name_or_path, settings, sizes);
  if (kind == PluginKind::Partitioner) return run_partitioner(registry, name_or_path, settings, sizes);
  PluginUnderTest plugin(registry, kind, name_or_path, settings, {});
  std::vector<Row> rows = run_alone(plugin, kind, sizes, InterleavedTimer(settings));
  plugin.shutdown();
  return rows;
}

}  // namespace strata::bench
